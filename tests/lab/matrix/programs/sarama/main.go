// The scenario of tests/lab/matrix/scenario.py by sarama.
package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/IBM/sarama"
)

func main() {
	run("github.com/IBM/sarama",
		step{"produce", func(context.Context) (line, error) {
			topics, err := produce("v")
			return line{"topics": topics}, err
		}},
		step{"consume", consume}, step{"group", share},
		step{"transactions", transactions},
		step{"admin", admin}, step{"brokers", brokers}, step{"traffic", doTraffic})
}

func config() *sarama.Config {
	settings := sarama.NewConfig()
	settings.Version = sarama.V2_8_0_0
	settings.Producer.Return.Successes = true
	settings.Producer.RequiredAcks = sarama.WaitForAll
	settings.Producer.Partitioner = sarama.NewManualPartitioner
	settings.Consumer.Offsets.Initial = sarama.OffsetOldest
	settings.Consumer.Offsets.AutoCommit.Enable = false
	settings.Consumer.Group.Session.Timeout = 10 * time.Second
	settings.Consumer.Group.Heartbeat.Interval = 500 * time.Millisecond
	return settings
}

// send produces word-0 and so on to all partitions in turn; the names of the topics that were confirmed.
func send(producer sarama.SyncProducer, word string) ([]string, error) {
	var messages []*sarama.ProducerMessage
	for number := range count {
		value := sarama.StringEncoder(fmt.Sprintf("%s-%d", word, number))
		messages = append(messages, &sarama.ProducerMessage{Topic: topic, Partition: int32(number % partitions), Value: value})
	}
	found := map[string]bool{}
	err := producer.SendMessages(messages)
	for _, message := range messages {
		found[message.Topic] = true
	}
	return sorted(found), err
}

func produce(word string) ([]string, error) {
	producer, err := sarama.NewSyncProducer(addresses(), config())
	if err != nil {
		return nil, err
	}
	defer producer.Close()
	return send(producer, word)
}

// member is a member of a group that marks and commits what it has received when it is told to.
type member struct {
	mutex   sync.Mutex
	client  sarama.ConsumerGroup
	session sarama.ConsumerGroupSession
	found   []*sarama.ConsumerMessage
	done    chan struct{}
	stop    context.CancelFunc
}

func join(ctx context.Context) (*member, error) {
	client, err := sarama.NewConsumerGroup(addresses(), group, config())
	if err != nil {
		return nil, err
	}
	own, stop := context.WithCancel(ctx)
	one := &member{client: client, done: make(chan struct{}), stop: stop}
	go func() {
		defer close(one.done)
		for own.Err() == nil {
			if err := client.Consume(own, []string{topic}, one); err != nil && own.Err() == nil {
				time.Sleep(100 * time.Millisecond)
			}
		}
	}()
	return one, nil
}

func (one *member) Setup(session sarama.ConsumerGroupSession) error {
	one.mutex.Lock()
	defer one.mutex.Unlock()
	one.session = session
	return nil
}

func (one *member) Cleanup(sarama.ConsumerGroupSession) error {
	one.mutex.Lock()
	defer one.mutex.Unlock()
	one.session = nil
	return nil
}

func (one *member) ConsumeClaim(session sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	for {
		select {
		case message, open := <-claim.Messages():
			if !open {
				return nil
			}
			one.mutex.Lock()
			one.found = append(one.found, message)
			one.mutex.Unlock()
			session.MarkMessage(message, "")
		case <-session.Context().Done():
			return nil
		}
	}
}

func (one *member) claims() map[string][]int32 {
	one.mutex.Lock()
	defer one.mutex.Unlock()
	if one.session == nil {
		return nil
	}
	return one.session.Claims()
}

func (one *member) received() []*sarama.ConsumerMessage {
	one.mutex.Lock()
	defer one.mutex.Unlock()
	return append([]*sarama.ConsumerMessage{}, one.found...)
}

func (one *member) commit() error {
	one.mutex.Lock()
	defer one.mutex.Unlock()
	if one.session == nil {
		return errors.New("no session to commit in")
	}
	one.session.Commit()
	return nil
}

func (one *member) close() {
	one.stop()
	<-one.done
	one.client.Close()
}

func until(ctx context.Context, enough func() bool) error {
	for !enough() {
		if ctx.Err() != nil {
			return errors.New("not enough was received")
		}
		time.Sleep(20 * time.Millisecond)
	}
	return nil
}

func names(messages []*sarama.ConsumerMessage) []string {
	found := map[string]bool{}
	for _, message := range messages {
		found[message.Topic] = true
	}
	return sorted(found)
}

func values(messages []*sarama.ConsumerMessage) []string {
	found := []string{}
	for _, message := range messages {
		found = append(found, string(message.Value))
	}
	return found
}

func distinct(messages []*sarama.ConsumerMessage) map[string]bool {
	found := map[string]bool{}
	for _, value := range values(messages) {
		found[value] = true
	}
	return found
}

func consume(ctx context.Context) (line, error) {
	one, err := join(ctx)
	if err != nil {
		return nil, err
	}
	defer one.close()
	if err := until(ctx, func() bool { return len(one.received()) >= count }); err != nil {
		return nil, err
	}
	found := one.received()
	return line{"topics": names(found), "values": values(found)}, one.commit()
}

func share(ctx context.Context) (line, error) {
	first, err := join(ctx)
	if err != nil {
		return nil, err
	}
	defer first.close()
	second, err := join(ctx)
	if err != nil {
		return nil, err
	}
	both := func() bool { return len(first.claims()) > 0 && len(second.claims()) > 0 }
	if err := until(ctx, both); err != nil {
		return nil, err
	}
	topics := map[string]bool{}
	for name := range first.claims() {
		topics[name] = true
	}
	if _, err := produce("w"); err != nil {
		return nil, err
	}
	all := func() []*sarama.ConsumerMessage { return append(first.received(), second.received()...) }
	if err := until(ctx, func() bool { return len(distinct(all())) >= count }); err != nil {
		return nil, err
	}
	shares := []int{len(first.received()), len(second.received())}
	if err := errors.Join(first.commit(), second.commit()); err != nil {
		return nil, err
	}
	second.close()
	// else records would be read twice
	if err := until(ctx, func() bool { return len(first.claims()[topic]) == partitions }); err != nil {
		return nil, err
	}
	if _, err := produce("x"); err != nil {
		return nil, err
	}
	if err := until(ctx, func() bool { return len(distinct(all())) >= 2*count }); err != nil {
		return nil, err
	}
	if err := first.commit(); err != nil {
		return nil, err
	}
	for _, name := range names(all()) {
		topics[name] = true
	}
	sum, err := committed(group)
	return line{"topics": sorted(topics), "values": sorted(distinct(all())), "shares": shares, "committed": sum}, err
}

// committed is the sum of a group's offsets for TOPIC.
func committed(of string) (int64, error) {
	one, err := sarama.NewClusterAdmin(addresses(), config())
	if err != nil {
		return 0, err
	}
	defer one.Close()
	answer, err := one.ListConsumerGroupOffsets(of, map[string][]int32{topic: {0, 1, 2}})
	if err != nil {
		return 0, err
	}
	sum := int64(0)
	for _, block := range answer.Blocks[topic] {
		if block.Offset > 0 {
			sum += block.Offset
		}
	}
	return sum, nil
}

func transactions(ctx context.Context) (line, error) {
	settings := config()
	settings.Producer.Idempotent = true
	settings.Net.MaxOpenRequests = 1
	settings.Producer.Transaction.ID = transactionalID
	producer, err := sarama.NewSyncProducer(addresses(), settings)
	if err != nil {
		return nil, err
	}
	defer producer.Close()
	offsets := group + "-offsets"
	seven := map[string][]*sarama.PartitionOffsetMetadata{topic: {{Partition: 0, Offset: 7}}}
	for _, word := range []string{"aborted", "kept"} {
		if err := producer.BeginTxn(); err != nil {
			return nil, err
		}
		if _, err := send(producer, word); err != nil {
			return nil, err
		}
		if err := producer.AddOffsetsToTxn(seven, offsets); err != nil {
			return nil, err
		}
		finish := producer.CommitTxn
		if word == "aborted" {
			finish = producer.AbortTxn
		}
		if err := finish(); err != nil {
			return nil, err
		}
	}
	found, err := readCommitted(ctx)
	if err != nil {
		return nil, err
	}
	offset := int64(0)
	for offset == 0 && err == nil && ctx.Err() == nil { // the commit is on its way
		offset, err = committed(offsets)
	}
	return line{"topics": names(found), "values": values(found), "committed": offset}, err
}

func readCommitted(ctx context.Context) ([]*sarama.ConsumerMessage, error) {
	settings := config()
	settings.Consumer.IsolationLevel = sarama.ReadCommitted
	reader, err := sarama.NewConsumer(addresses(), settings)
	if err != nil {
		return nil, err
	}
	defer reader.Close()
	received := make(chan *sarama.ConsumerMessage)
	for number := range int32(partitions) {
		place, err := reader.ConsumePartition(topic, number, sarama.OffsetOldest)
		if err != nil {
			return nil, err
		}
		defer place.AsyncClose()
		go func() {
			for message := range place.Messages() {
				select {
				case received <- message:
				case <-ctx.Done():
				}
			}
		}()
	}
	var found []*sarama.ConsumerMessage
	for len(found) < count {
		select {
		case message := <-received:
			if value := string(message.Value); strings.HasPrefix(value, "kept") || strings.HasPrefix(value, "aborted") {
				found = append(found, message)
			}
		case <-ctx.Done():
			return nil, errors.New("not enough was received")
		}
	}
	return found, nil
}

func wait(ctx context.Context, adm sarama.ClusterAdmin, there bool) (map[string]sarama.TopicDetail, error) {
	for ctx.Err() == nil {
		topics, err := adm.ListTopics()
		if err != nil {
			return nil, err
		}
		if _, found := topics[made]; found == there {
			return topics, nil
		}
		time.Sleep(100 * time.Millisecond)
	}
	return nil, fmt.Errorf("%s: there should be %t", made, there)
}

func admin(ctx context.Context) (line, error) {
	adm, err := sarama.NewClusterAdmin(addresses(), config())
	if err != nil {
		return nil, err
	}
	defer adm.Close()
	if err := adm.CreateTopic(made, &sarama.TopicDetail{NumPartitions: 2, ReplicationFactor: 1}, false); err != nil {
		return nil, err
	}
	topics, err := wait(ctx, adm, true)
	if err != nil {
		return nil, err
	}
	listed := map[string]bool{}
	for name := range topics {
		listed[name] = true
	}
	groups, err := adm.ListConsumerGroups()
	if err != nil {
		return nil, err
	}
	ids := map[string]bool{}
	for id := range groups {
		ids[id] = true
	}
	described, err := adm.DescribeConsumerGroups([]string{group})
	if err != nil {
		return nil, err
	}
	if err := adm.DeleteTopic(made); err != nil {
		return nil, err
	}
	_, err = wait(ctx, adm, false)
	return line{
		"listed": sorted(listed), "partitions": topics[made].NumPartitions, "groups": sorted(ids),
		"described": described[0].GroupId, "members": len(described[0].Members),
	}, err
}

func brokers(context.Context) (line, error) {
	adm, err := sarama.NewClusterAdmin(addresses(), config())
	if err != nil {
		return nil, err
	}
	defer adm.Close()
	known, _, err := adm.DescribeCluster()
	found := map[string]bool{}
	for _, broker := range known {
		found[broker.Addr()] = true
	}
	return line{"addresses": sorted(found)}, err
}
