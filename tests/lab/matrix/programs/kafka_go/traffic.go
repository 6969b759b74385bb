// The step traffic of tests/lab/matrix/scenario.py: writes and reads by turns, and notes what fails.
package main

import (
	"context"
	"errors"
	"time"

	"github.com/segmentio/kafka-go"
)

func trafficWriter(all *traffic) *kafka.Writer {
	return &kafka.Writer{
		Addr: kafka.TCP(addresses()...), Topic: topic, Balancer: kafka.BalancerFunc(byNumber),
		RequiredAcks: kafka.RequireAll, BatchTimeout: 10 * time.Millisecond, Transport: &kafka.Transport{},
		ReadTimeout: 5 * time.Second, WriteTimeout: 5 * time.Second,
		Completion: func(messages []kafka.Message, err error) {
			all.mutex.Lock()
			defer all.mutex.Unlock()
			for _, message := range messages {
				if err == nil {
					all.acknowledged = append(all.acknowledged, []any{string(message.Value), message.Partition, message.Offset})
				}
			}
		},
	}
}

func (all *traffic) write(writer *kafka.Writer) {
	values, places := all.next()
	var messages []kafka.Message
	for number, value := range values {
		messages = append(messages, kafka.Message{Key: []byte{byte(places[number])}, Value: []byte(value)})
	}
	ctx, cancel := context.WithDeadline(context.Background(), all.limit)
	defer cancel()
	err := writer.WriteMessages(ctx, messages...)
	if err == nil {
		return
	}
	var each kafka.WriteErrors
	errors.As(err, &each)
	for number, value := range values {
		reason := err
		if each != nil {
			reason = each[number]
		}
		if reason != nil {
			all.failed = append(all.failed, []string{value, reason.Error()})
		}
	}
}

func trafficReader() *kafka.Reader {
	return kafka.NewReader(kafka.ReaderConfig{
		Brokers: addresses(), GroupID: group, Topic: topic, StartOffset: kafka.FirstOffset, MaxWait: 200 * time.Millisecond,
		SessionTimeout: 6 * time.Second, HeartbeatInterval: 500 * time.Millisecond, JoinGroupBackoff: 200 * time.Millisecond,
	})
}

// readUntil reads until it is enough; what it has read since the last commit is in found.
func (all *traffic) readUntil(reader *kafka.Reader, enough func() bool, until time.Time) (found []kafka.Message) {
	for !enough() && time.Now().Before(until) {
		ctx, cancel := context.WithTimeout(context.Background(), 200*time.Millisecond)
		message, err := reader.FetchMessage(ctx)
		if err == nil {
			all.took(message.Value, message.Partition, message.Offset)
			found = append(found, message)
		} else if ctx.Err() == nil {
			all.note(err)
			time.Sleep(100 * time.Millisecond)
		}
		cancel()
	}
	return found
}

func doTraffic(context.Context) (line, error) {
	all := newTraffic()
	writer := trafficWriter(all)
	var reader *kafka.Reader
	for number := 0; number < rounds && time.Now().Before(all.limit); number++ {
		all.write(writer)
		if number == 0 || number == rounds/2 {
			if reader != nil {
				all.note(reader.Close())
			}
			reader = trafficReader()
		}
		found := all.readUntil(reader, all.wasRead, all.roundEnds())
		ctx, cancel := context.WithDeadline(context.Background(), all.limit)
		all.note(reader.CommitMessages(ctx, found...))
		cancel()
	}
	all.readUntil(reader, all.wasRead, all.limit)
	all.readUntil(reader, func() bool { return false }, time.Now().Add(time.Second))
	all.note(reader.Close())
	return all.told(), nil
}
