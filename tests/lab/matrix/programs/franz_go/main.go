// The scenario of tests/lab/matrix/scenario.py by franz-go.
package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

func main() {
	run("github.com/twmb/franz-go",
		step{"produce", func(ctx context.Context) (line, error) {
			topics, err := produce(ctx, "v")
			return line{"topics": topics}, err
		}},
		step{"consume", consume}, step{"group", share},
		step{"transactions", transactions},
		step{"admin", admin}, step{"brokers", brokers}, step{"traffic", doTraffic})
}

func client(options ...kgo.Opt) (*kgo.Client, error) {
	return kgo.NewClient(append([]kgo.Opt{kgo.SeedBrokers(addresses()...)}, options...)...)
}

// send produces word-0 and so on to all partitions in turn; the names of the topics that were confirmed.
func send(ctx context.Context, from *kgo.Client, word string) ([]string, error) {
	var records []*kgo.Record
	for number := range count {
		value := fmt.Appendf(nil, "%s-%d", word, number)
		records = append(records, &kgo.Record{Topic: topic, Partition: int32(number % partitions), Value: value})
	}
	results := from.ProduceSync(ctx, records...)
	return names(records), results.FirstErr()
}

func produce(ctx context.Context, word string) ([]string, error) {
	producer, err := client(kgo.RecordPartitioner(kgo.ManualPartitioner()))
	if err != nil {
		return nil, err
	}
	defer producer.Close()
	return send(ctx, producer, word)
}

func names(records []*kgo.Record) []string {
	found := map[string]bool{}
	for _, record := range records {
		found[record.Topic] = true
	}
	return sorted(found)
}

func values(records []*kgo.Record) []string {
	found := []string{}
	for _, record := range records {
		found = append(found, string(record.Value))
	}
	return found
}

func distinct(records ...*kgo.Record) map[string]bool {
	found := map[string]bool{}
	for _, value := range values(records) {
		found[value] = true
	}
	return found
}

// member is a consumer of a group that does not commit by itself.
type member struct {
	*kgo.Client
	assigned map[string]int
	found    []*kgo.Record
}

func join() (*member, error) {
	one := &member{assigned: map[string]int{}}
	var err error
	one.Client, err = client(
		kgo.ConsumerGroup(group), kgo.ConsumeTopics(topic), kgo.DisableAutoCommit(), kgo.BlockRebalanceOnPoll(),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.SessionTimeout(10*time.Second), kgo.HeartbeatInterval(500*time.Millisecond),
		kgo.OnPartitionsAssigned(func(_ context.Context, _ *kgo.Client, given map[string][]int32) {
			for name, places := range given {
				one.assigned[name] += len(places)
			}
		}),
		kgo.OnPartitionsRevoked(func(_ context.Context, _ *kgo.Client, taken map[string][]int32) {
			for name, places := range taken {
				one.assigned[name] -= len(places)
			}
		}))
	return one, err
}

// poll lets all members receive until it is enough.
func poll(ctx context.Context, enough func() bool, members ...*member) error {
	for !enough() {
		if ctx.Err() != nil {
			return errors.New("not enough was received")
		}
		for _, one := range members {
			short, cancel := context.WithTimeout(ctx, 100*time.Millisecond)
			fetches := one.PollFetches(short)
			cancel()
			one.found = append(one.found, fetches.Records()...)
			one.AllowRebalance()
		}
	}
	return nil
}

func consume(ctx context.Context) (line, error) {
	one, err := join()
	if err != nil {
		return nil, err
	}
	defer one.Close()
	if err := poll(ctx, func() bool { return len(one.found) >= count }, one); err != nil {
		return nil, err
	}
	err = one.CommitRecords(ctx, one.found...)
	return line{"topics": names(one.found), "values": values(one.found)}, err
}

func share(ctx context.Context) (line, error) {
	first, err := join()
	if err != nil {
		return nil, err
	}
	defer first.CloseAllowingRebalance()
	second, err := join()
	if err != nil {
		return nil, err
	}
	defer second.CloseAllowingRebalance()
	both := func() bool { return first.assigned[topic] > 0 && second.assigned[topic] > 0 }
	if err := poll(ctx, both, first, second); err != nil {
		return nil, err
	}
	topics := map[string]bool{}
	for name := range first.assigned {
		topics[name] = true
	}
	if _, err := produce(ctx, "w"); err != nil {
		return nil, err
	}
	all := func() []*kgo.Record { return append(append([]*kgo.Record{}, first.found...), second.found...) }
	if err := poll(ctx, func() bool { return len(distinct(all()...)) >= count }, first, second); err != nil {
		return nil, err
	}
	shares := []int{len(first.found), len(second.found)}
	if err := errors.Join(first.CommitRecords(ctx, first.found...), second.CommitRecords(ctx, second.found...)); err != nil {
		return nil, err
	}
	second.CloseAllowingRebalance()
	// else records would be read twice
	if err := poll(ctx, func() bool { return first.assigned[topic] == partitions }, first); err != nil {
		return nil, err
	}
	if _, err := produce(ctx, "x"); err != nil {
		return nil, err
	}
	if err := poll(ctx, func() bool { return len(distinct(all()...)) >= 2*count }, first); err != nil {
		return nil, err
	}
	if err := first.CommitRecords(ctx, first.found...); err != nil {
		return nil, err
	}
	committed, err := kadm.NewClient(first.Client).FetchOffsets(ctx, group)
	if err != nil {
		return nil, err
	}
	sum := int64(0)
	committed.Each(func(offset kadm.OffsetResponse) {
		sum += offset.At
		topics[offset.Topic] = true
	})
	for _, record := range all() {
		topics[record.Topic] = true
	}
	return line{"topics": sorted(topics), "values": sorted(distinct(all()...)), "shares": shares, "committed": sum}, nil
}

// commitInTransaction has no call of its own in the library, which commits what a group session has consumed.
func commitInTransaction(ctx context.Context, producer *kgo.Client, offsets string) error {
	id, epoch, err := producer.ProducerID(ctx)
	if err != nil {
		return err
	}
	add := kmsg.NewAddOffsetsToTxnRequest()
	add.TransactionalID, add.ProducerID, add.ProducerEpoch, add.Group = transactionalID, id, epoch, offsets
	added, err := add.RequestWith(ctx, producer)
	if err != nil {
		return err
	}
	if err := kerr.ErrorForCode(added.ErrorCode); err != nil {
		return err
	}
	commit := kmsg.NewTxnOffsetCommitRequest()
	commit.TransactionalID, commit.ProducerID, commit.ProducerEpoch, commit.Group = transactionalID, id, epoch, offsets
	place := kmsg.NewTxnOffsetCommitRequestTopicPartition()
	place.Offset = 7
	of := kmsg.NewTxnOffsetCommitRequestTopic()
	of.Topic, of.Partitions = topic, append(of.Partitions, place)
	commit.Topics = append(commit.Topics, of)
	committed, err := commit.RequestWith(ctx, producer)
	if err != nil {
		return err
	}
	return kerr.ErrorForCode(committed.Topics[0].Partitions[0].ErrorCode)
}

func transactions(ctx context.Context) (line, error) {
	producer, err := client(kgo.TransactionalID(transactionalID), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	if err != nil {
		return nil, err
	}
	defer producer.Close()
	offsets := group + "-offsets"
	for _, word := range []string{"aborted", "kept"} {
		if err := producer.BeginTransaction(); err != nil {
			return nil, err
		}
		if _, err := send(ctx, producer, word); err != nil {
			return nil, err
		}
		if err := commitInTransaction(ctx, producer, offsets); err != nil {
			return nil, err
		}
		if err := producer.EndTransaction(ctx, kgo.TransactionEndTry(word == "kept")); err != nil {
			return nil, err
		}
	}
	reader, err := client(kgo.ConsumeTopics(topic), kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	if err != nil {
		return nil, err
	}
	defer reader.Close()
	var found []*kgo.Record
	for words := 0; words < count; {
		fetches := reader.PollFetches(ctx)
		if ctx.Err() != nil {
			return nil, errors.New("not enough was received")
		}
		for _, record := range fetches.Records() {
			if value := string(record.Value); strings.HasPrefix(value, "kept") || strings.HasPrefix(value, "aborted") {
				found = append(found, record)
				words++
			}
		}
	}
	var offset kadm.OffsetResponse
	for there := false; !there && ctx.Err() == nil; { // the commit is on its way
		committed, err := kadm.NewClient(producer).FetchOffsets(ctx, offsets)
		if err != nil {
			return nil, err
		}
		offset, there = committed.Lookup(topic, 0)
	}
	return line{"topics": names(found), "values": values(found), "committed": offset.At}, nil
}

func wait(ctx context.Context, adm *kadm.Client, there bool) (kadm.TopicDetails, error) {
	for ctx.Err() == nil {
		topics, err := adm.ListTopicsWithInternal(ctx)
		if err != nil {
			return nil, err
		}
		if topics.Has(made) == there {
			return topics, nil
		}
		time.Sleep(100 * time.Millisecond)
	}
	return nil, fmt.Errorf("%s: there should be %t", made, there)
}

func admin(ctx context.Context) (line, error) {
	one, err := client()
	if err != nil {
		return nil, err
	}
	defer one.Close()
	adm := kadm.NewClient(one)
	if _, err := adm.CreateTopic(ctx, 2, 1, nil, made); err != nil {
		return nil, err
	}
	topics, err := wait(ctx, adm, true)
	if err != nil {
		return nil, err
	}
	groups, err := adm.ListGroups(ctx)
	if err != nil {
		return nil, err
	}
	described, err := adm.DescribeGroups(ctx, group)
	if err != nil {
		return nil, err
	}
	if _, err := adm.DeleteTopic(ctx, made); err != nil {
		return nil, err
	}
	if _, err := wait(ctx, adm, false); err != nil {
		return nil, err
	}
	about := described.Sorted()[0]
	return line{
		"listed": topics.Names(), "partitions": len(topics[made].Partitions), "groups": groups.Groups(),
		"described": about.Group, "members": len(about.Members),
	}, about.Err
}

func brokers(ctx context.Context) (line, error) {
	one, err := client()
	if err != nil {
		return nil, err
	}
	defer one.Close()
	known, err := kadm.NewClient(one).ListBrokers(ctx)
	addresses := []string{}
	for _, broker := range known {
		addresses = append(addresses, fmt.Sprintf("%s:%d", broker.Host, broker.Port))
	}
	return line{"addresses": addresses}, err
}
