// The scenario of tests/lab/matrix/scenario.py by segmentio/kafka-go, which has no transactions.
package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/segmentio/kafka-go"
)

func main() {
	run("github.com/segmentio/kafka-go",
		step{"produce", func(ctx context.Context) (line, error) {
			topics, err := produce(ctx, "v")
			return line{"topics": topics}, err
		}},
		step{"consume", consume}, step{"group", share},
		step{"transactions", func(context.Context) (line, error) {
			return line{"missing": "its producer has no transactions"}, nil
		}},
		step{"admin", admin}, step{"brokers", brokers}, step{"traffic", doTraffic})
}

func client() *kafka.Client {
	return &kafka.Client{Addr: kafka.TCP(addresses()...), Timeout: patience}
}

// byNumber puts a message into the partition that its key names.
func byNumber(message kafka.Message, _ ...int) int { return int(message.Key[0]) }

// produce sends word-0 and so on to all partitions in turn; the names of the topics that were confirmed.
func produce(ctx context.Context, word string) ([]string, error) {
	confirmed, mutex := map[string]bool{}, sync.Mutex{}
	writer := &kafka.Writer{
		Addr: kafka.TCP(addresses()...), Topic: topic, Balancer: kafka.BalancerFunc(byNumber),
		RequiredAcks: kafka.RequireAll, BatchTimeout: 10 * time.Millisecond, Transport: &kafka.Transport{},
		Completion: func(messages []kafka.Message, err error) {
			mutex.Lock()
			defer mutex.Unlock()
			for _, message := range messages {
				confirmed[message.Topic] = err == nil
			}
		},
	}
	var messages []kafka.Message
	for number := range count {
		value := fmt.Appendf(nil, "%s-%d", word, number)
		messages = append(messages, kafka.Message{Key: []byte{byte(number % partitions)}, Value: value})
	}
	err := errors.Join(writer.WriteMessages(ctx, messages...), writer.Close())
	return sorted(confirmed), err
}

// member reads in a goroutine of its own and commits when it is told to.
type member struct {
	mutex  sync.Mutex
	reader *kafka.Reader
	found  []kafka.Message
	done   chan struct{}
	stop   context.CancelFunc
}

func join(ctx context.Context) *member {
	own, stop := context.WithCancel(ctx)
	one := &member{stop: stop, done: make(chan struct{}), reader: kafka.NewReader(kafka.ReaderConfig{
		Brokers: addresses(), GroupID: group, Topic: topic, StartOffset: kafka.FirstOffset, MaxWait: 200 * time.Millisecond,
		SessionTimeout: 10 * time.Second, HeartbeatInterval: 500 * time.Millisecond, JoinGroupBackoff: 200 * time.Millisecond,
	})}
	go func() {
		defer close(one.done)
		for own.Err() == nil {
			if message, err := one.reader.FetchMessage(own); err == nil {
				one.mutex.Lock()
				one.found = append(one.found, message)
				one.mutex.Unlock()
			}
		}
	}()
	return one
}

func (one *member) received() []kafka.Message {
	one.mutex.Lock()
	defer one.mutex.Unlock()
	return append([]kafka.Message{}, one.found...)
}

func (one *member) commit(ctx context.Context) error {
	return one.reader.CommitMessages(ctx, one.received()...)
}

func (one *member) close() {
	one.stop()
	<-one.done
	one.reader.Close()
}

func until(ctx context.Context, enough func() bool) error {
	for !enough() {
		if ctx.Err() != nil {
			return errors.New("not enough was received")
		}
		time.Sleep(50 * time.Millisecond)
	}
	return nil
}

func names(messages []kafka.Message) []string {
	found := map[string]bool{}
	for _, message := range messages {
		found[message.Topic] = true
	}
	return sorted(found)
}

func values(messages []kafka.Message) []string {
	found := []string{}
	for _, message := range messages {
		found = append(found, string(message.Value))
	}
	return found
}

func distinct(messages []kafka.Message) map[string]bool {
	found := map[string]bool{}
	for _, value := range values(messages) {
		found[value] = true
	}
	return found
}

func consume(ctx context.Context) (line, error) {
	one := join(ctx)
	defer one.close()
	if err := until(ctx, func() bool { return len(one.received()) >= count }); err != nil {
		return nil, err
	}
	found := one.received()
	return line{"topics": names(found), "values": values(found)}, one.commit(ctx)
}

// assigned are the members of the group that have partitions, as the coordinator describes it.
func assigned(ctx context.Context) (int, map[string]bool) {
	answer, err := client().DescribeGroups(ctx, &kafka.DescribeGroupsRequest{GroupIDs: []string{group}})
	topics, members := map[string]bool{}, 0
	if err != nil || answer.Groups[0].GroupState != "Stable" {
		return 0, topics
	}
	for _, one := range answer.Groups[0].Members {
		for _, of := range one.MemberAssignments.Topics {
			topics[of.Topic] = true
			members += min(1, len(of.Partitions))
		}
	}
	return members, topics
}

func share(ctx context.Context) (line, error) {
	first, second := join(ctx), join(ctx)
	defer first.close()
	var topics map[string]bool
	both := func() bool {
		members, found := assigned(ctx)
		topics = found
		return members == 2
	}
	if err := until(ctx, both); err != nil {
		return nil, err
	}
	if _, err := produce(ctx, "w"); err != nil {
		return nil, err
	}
	all := func() []kafka.Message { return append(first.received(), second.received()...) }
	if err := until(ctx, func() bool { return len(distinct(all())) >= count }); err != nil {
		return nil, err
	}
	shares := []int{len(first.received()), len(second.received())}
	if err := errors.Join(first.commit(ctx), second.commit(ctx)); err != nil {
		return nil, err
	}
	second.close()
	alone := func() bool {
		members, _ := assigned(ctx)
		return members == 1
	}
	if err := until(ctx, alone); err != nil { // else records would be read twice
		return nil, err
	}
	if _, err := produce(ctx, "x"); err != nil {
		return nil, err
	}
	if err := until(ctx, func() bool { return len(distinct(all())) >= 2*count }); err != nil {
		return nil, err
	}
	if err := first.commit(ctx); err != nil {
		return nil, err
	}
	for _, name := range names(all()) {
		topics[name] = true
	}
	answer, err := client().OffsetFetch(ctx, &kafka.OffsetFetchRequest{GroupID: group, Topics: map[string][]int{topic: {0, 1, 2}}})
	if err != nil {
		return nil, err
	}
	sum := int64(0)
	for _, place := range answer.Topics[topic] {
		sum += place.CommittedOffset
	}
	return line{"topics": sorted(topics), "values": sorted(distinct(all())), "shares": shares, "committed": sum}, nil
}

func wait(ctx context.Context, there bool) (listed map[string]bool, parts int, err error) {
	for ctx.Err() == nil {
		answer, err := client().Metadata(ctx, &kafka.MetadataRequest{})
		if err != nil {
			return nil, 0, err
		}
		listed, parts = map[string]bool{}, 0
		for _, one := range answer.Topics {
			listed[one.Name] = true
			if one.Name == made {
				parts = len(one.Partitions)
			}
		}
		if listed[made] == there {
			return listed, parts, nil
		}
		time.Sleep(100 * time.Millisecond)
	}
	return nil, 0, fmt.Errorf("%s: there should be %t", made, there)
}

func admin(ctx context.Context) (line, error) {
	one := client()
	wanted := kafka.TopicConfig{Topic: made, NumPartitions: 2, ReplicationFactor: 1}
	created, err := one.CreateTopics(ctx, &kafka.CreateTopicsRequest{Topics: []kafka.TopicConfig{wanted}})
	if err != nil {
		return nil, err
	}
	if err := created.Errors[made]; err != nil {
		return nil, err
	}
	listed, parts, err := wait(ctx, true)
	if err != nil {
		return nil, err
	}
	groups := map[string]bool{}
	known, err := one.Metadata(ctx, &kafka.MetadataRequest{})
	if err != nil {
		return nil, err
	}
	for _, broker := range known.Brokers {
		address := kafka.TCP(net.JoinHostPort(broker.Host, fmt.Sprint(broker.Port)))
		answer, err := one.ListGroups(ctx, &kafka.ListGroupsRequest{Addr: address})
		if err != nil {
			return nil, err
		}
		for _, found := range answer.Groups {
			groups[found.GroupID] = true
		}
	}
	described, err := one.DescribeGroups(ctx, &kafka.DescribeGroupsRequest{GroupIDs: []string{group}})
	if err != nil {
		return nil, err
	}
	deleted, err := one.DeleteTopics(ctx, &kafka.DeleteTopicsRequest{Topics: []string{made}})
	if err != nil {
		return nil, err
	}
	if err := deleted.Errors[made]; err != nil {
		return nil, err
	}
	_, _, err = wait(ctx, false)
	about := described.Groups[0]
	return line{
		"listed": sorted(listed), "partitions": parts, "groups": sorted(groups),
		"described": about.GroupID, "members": len(about.Members),
	}, err
}

func brokers(ctx context.Context) (line, error) {
	answer, err := client().Metadata(ctx, &kafka.MetadataRequest{})
	if err != nil {
		return nil, err
	}
	found := map[string]bool{}
	for _, broker := range answer.Brokers {
		found[net.JoinHostPort(broker.Host, fmt.Sprint(broker.Port))] = true
	}
	return line{"addresses": sorted(found)}, nil
}
