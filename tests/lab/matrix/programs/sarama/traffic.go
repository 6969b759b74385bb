// The step traffic of tests/lab/matrix/scenario.py: writes and reads by turns, and notes what fails.
package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/IBM/sarama"
)

func trafficConfig() *sarama.Config {
	settings := config()
	settings.Net.DialTimeout, settings.Net.ReadTimeout, settings.Net.WriteTimeout = 5*time.Second, 5*time.Second, 5*time.Second
	settings.Producer.Timeout = 5 * time.Second
	settings.Consumer.Group.Session.Timeout = 6 * time.Second
	settings.Consumer.Return.Errors = true
	return settings
}

func (all *traffic) write(producer sarama.SyncProducer) {
	values, places := all.next()
	var messages []*sarama.ProducerMessage
	for number, value := range values {
		messages = append(messages, &sarama.ProducerMessage{
			Topic: topic, Partition: places[number], Value: sarama.StringEncoder(value), Metadata: value,
		})
	}
	wrong := map[any]bool{}
	var problems sarama.ProducerErrors
	if err := producer.SendMessages(messages); errors.As(err, &problems) {
		for _, problem := range problems {
			wrong[problem.Msg.Metadata] = true
			all.failed = append(all.failed, []string{fmt.Sprint(problem.Msg.Metadata), problem.Err.Error()})
		}
	} else if err != nil {
		all.note(err)
		return
	}
	for _, message := range messages {
		if !wrong[message.Metadata] {
			all.acknowledged = append(all.acknowledged, []any{message.Metadata, message.Partition, message.Offset})
		}
	}
}

// joinTraffic starts a member that notes errors of its library.
func (all *traffic) joinTraffic() (*member, error) {
	client, err := sarama.NewConsumerGroup(addresses(), group, trafficConfig())
	if err != nil {
		return nil, err
	}
	own, stop := context.WithCancel(context.Background())
	one := &member{client: client, done: make(chan struct{}), stop: stop}
	go func() {
		for err := range client.Errors() {
			all.note(err)
		}
	}()
	go func() {
		defer close(one.done)
		for own.Err() == nil {
			if err := client.Consume(own, []string{topic}, one); err != nil && own.Err() == nil {
				all.note(err)
				time.Sleep(100 * time.Millisecond)
			}
		}
	}()
	return one, nil
}

// take moves over what a member has received.
func (all *traffic) take(one *member) {
	one.mutex.Lock()
	found := one.found
	one.found = nil
	one.mutex.Unlock()
	for _, message := range found {
		all.took(message.Value, int(message.Partition), message.Offset)
	}
}

func (all *traffic) readUntil(one *member, enough func() bool, until time.Time) {
	for all.take(one); !enough() && time.Now().Before(until); all.take(one) {
		time.Sleep(50 * time.Millisecond)
	}
}

func doTraffic(context.Context) (line, error) {
	all := newTraffic()
	producer, err := sarama.NewSyncProducer(addresses(), trafficConfig())
	if err != nil {
		return nil, err
	}
	var one *member
	for number := 0; number < rounds && time.Now().Before(all.limit); number++ {
		if number == rounds/2 { // else it would receive what it does not commit
			one.close()
			all.take(one)
		}
		all.write(producer)
		if number == 0 || number == rounds/2 {
			if one, err = all.joinTraffic(); err != nil {
				return nil, err
			}
		}
		all.readUntil(one, all.wasRead, all.roundEnds())
		all.note(one.commit())
	}
	all.readUntil(one, all.wasRead, all.limit)
	all.readUntil(one, func() bool { return false }, time.Now().Add(time.Second))
	one.close()
	return all.told(), nil
}
