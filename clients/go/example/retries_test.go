package example

import (
	"context"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"kproxykit"
)

func producer(t *testing.T, kproxy *kproxykit.Kproxy) *kgo.Client {
	client, err := kgo.NewClient(
		kgo.SeedBrokers(kproxy.Bootstrap),
		kgo.DefaultProduceTopic("orders"),
		kgo.ProducerLinger(0),
		kgo.RecordDeliveryTimeout(20*time.Second),
	)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	return client
}

// write fails the test unless each of these is acknowledged, one after the other.
func write(t *testing.T, client *kgo.Client, values ...string) {
	t.Helper()
	for _, value := range values {
		if err := client.ProduceSync(context.Background(), kgo.StringRecord(value)).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
}

// snippet: retries
func TestTheThirdWriteIsTriedAgain(t *testing.T) {
	kproxy := kproxykit.Start(t, kproxykit.Options{Topics: map[string]int{"orders": 1}})
	rule := kproxy.Inject(`{kind: error, match: {api: Produce, topic: orders}, when: {nth: 3}, error: NOT_LEADER_OR_FOLLOWER}`)
	write(t, producer(t, kproxy), "one", "two", "three", "four")
	kproxy.AssertApplied()
	if matched := rule.Counters().Matched; matched != 5 { // the fourth request was the third record's second attempt
		t.Errorf("%d writes, expected 5", matched)
	}
}

// end

func TestTheExchangesTellWhatHappened(t *testing.T) {
	kproxy := kproxykit.Start(t, kproxykit.Options{Topics: map[string]int{"orders": 1}})
	kproxy.Inject(`{kind: error, match: {api: Produce}, when: {nth: 3}, error: NOT_LEADER_OR_FOLLOWER}`)
	write(t, producer(t, kproxy), "one", "two", "three", "four")

	var errors []string
	for _, exchange := range kproxy.Await("~k produce ~t orders", 5) {
		errors = append(errors, exchange.Errors()...)
		if exchange["topic"] != "orders" {
			t.Errorf("%v is not about orders", exchange)
		}
	}
	if len(errors) != 1 || errors[0] != "NOT_LEADER_OR_FOLLOWER" {
		t.Errorf("errors %v", errors)
	}
	if found := kproxy.Exchanges("error and ~k produce"); len(found) != 1 || found[0].API() != "Produce" {
		t.Errorf("with errors %v", found)
	}
}

func TestASlowBrokerIsWaitedFor(t *testing.T) {
	kproxy := kproxykit.Start(t, kproxykit.Options{Topics: map[string]int{"orders": 1}})
	rule := kproxy.Inject(`{kind: delay, match: {api: Produce}, when: {once: true}, delay: 300ms, at: response}`)
	began := time.Now()
	write(t, producer(t, kproxy), "one")
	rule.Wait(1)

	if took := time.Since(began); took < 300*time.Millisecond {
		t.Errorf("it took %s", took)
	}
	if latency := kproxy.Await("~k produce", 1)[0].Latency(); latency < 300*time.Millisecond {
		t.Errorf("its latency is %s", latency)
	}
}

func TestALostAnswerIsAskedForAgain(t *testing.T) {
	kproxy := kproxykit.Start(t, kproxykit.Options{Topics: map[string]int{"orders": 1}})
	lost := kproxy.Inject(`{kind: disconnect, match: {api: Produce}, when: {once: true}, at: response, close_with: rst}`)
	write(t, producer(t, kproxy), "one")

	kproxy.AssertApplied(lost)
	if matched := lost.Counters().Matched; matched != 2 {
		t.Errorf("%d writes, expected 2", matched)
	}
}
