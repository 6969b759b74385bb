// The step traffic of tests/lab/matrix/scenario.py: writes and reads by turns, and notes what fails.
package main

import (
	"context"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

func (all *traffic) write(producer *kgo.Client) {
	values, places := all.next()
	var records []*kgo.Record
	for number, value := range values {
		records = append(records, &kgo.Record{Topic: topic, Partition: places[number], Value: []byte(value)})
	}
	ctx, cancel := context.WithDeadline(context.Background(), all.limit)
	defer cancel()
	for _, result := range producer.ProduceSync(ctx, records...) {
		value := string(result.Record.Value)
		if result.Err != nil {
			all.failed = append(all.failed, []string{value, result.Err.Error()})
		} else {
			all.acknowledged = append(all.acknowledged, []any{value, result.Record.Partition, result.Record.Offset})
		}
	}
}

func (all *traffic) readUntil(one *kgo.Client, enough func() bool, until time.Time) {
	for !enough() && time.Now().Before(until) {
		ctx, cancel := context.WithTimeout(context.Background(), 200*time.Millisecond)
		fetches := one.PollFetches(ctx)
		fetches.EachError(func(_ string, _ int32, err error) {
			if ctx.Err() == nil {
				all.note(err)
			}
		})
		cancel()
		fetches.EachRecord(func(record *kgo.Record) { all.took(record.Value, int(record.Partition), record.Offset) })
	}
}

func doTraffic(context.Context) (line, error) {
	all := newTraffic()
	producer, err := client(kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProduceRequestTimeout(5*time.Second),
		kgo.RequestTimeoutOverhead(time.Second), kgo.RecordDeliveryTimeout(20*time.Second))
	if err != nil {
		return nil, err
	}
	var one *kgo.Client
	for number := 0; number < rounds && time.Now().Before(all.limit); number++ {
		all.write(producer)
		if number == 0 || number == rounds/2 {
			if one != nil {
				one.Close()
			}
			one, err = client(kgo.ConsumerGroup(group), kgo.ConsumeTopics(topic), kgo.DisableAutoCommit(),
				kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.SessionTimeout(6*time.Second),
				kgo.HeartbeatInterval(500*time.Millisecond), kgo.RequestTimeoutOverhead(5*time.Second))
			if err != nil {
				return nil, err
			}
		}
		all.readUntil(one, all.wasRead, all.roundEnds())
		ctx, cancel := context.WithDeadline(context.Background(), all.limit)
		all.note(one.CommitUncommittedOffsets(ctx))
		cancel()
	}
	all.readUntil(one, all.wasRead, all.limit)
	all.readUntil(one, func() bool { return false }, time.Now().Add(time.Second))
	one.Close()
	return all.told(), nil
}
