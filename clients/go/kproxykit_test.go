package kproxykit_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"kproxykit"
)

// broken is a test that may fail: what it would have said is kept.
type broken struct {
	testing.TB
	said []string
}

func (b *broken) Helper()                       {}
func (b *broken) Name() string                  { return "broken" }
func (b *broken) Cleanup(func())                {}
func (b *broken) Error(words ...any)            { b.said = append(b.said, words[0].(error).Error()) }
func (b *broken) Errorf(text string, of ...any) { b.said = append(b.said, fmt.Sprintf(text, of...)) }
func (b *broken) Fatalf(text string, of ...any) { b.Errorf(text, of...); panic(b) }
func (b *broken) Fatal(words ...any) {
	if err, is := words[0].(error); is {
		b.said = append(b.said, err.Error())
	} else {
		b.said = append(b.said, words[0].(string))
	}
	panic(b)
}

func fails(t *testing.T, process *kproxykit.Process, says string, test func(*kproxykit.Kproxy)) {
	t.Helper()
	b := &broken{}
	func() {
		defer func() {
			if found := recover(); found != nil && found != any(b) {
				panic(found)
			}
		}()
		test(process.For(b))
	}()
	if text := strings.Join(b.said, "\n"); !strings.Contains(text, says) {
		t.Errorf("it said %q, expected %q", text, says)
	}
}

func TestAProcessIsSharedAndRulesGoWithTheirTest(t *testing.T) {
	process, err := kproxykit.Open(kproxykit.Options{Brokers: 1})
	if err != nil {
		t.Fatal(err)
	}
	t.Run("first", func(t *testing.T) { process.For(t).Inject(`{kind: delay, delay: 1ms}`) })
	t.Run("second", func(t *testing.T) {
		second := process.For(t)
		rule := second.Inject(`{kind: delay, delay: 1ms}`)
		if !strings.HasSuffix(rule.Name, "second 1") || rule.Counters() != (kproxykit.Counters{}) {
			t.Errorf("%v", rule)
		}
		rule.Remove()
		rule.Remove()
		if found := second.Exchanges(""); len(found) != 0 {
			t.Errorf("%v", found)
		}
	})
	fails(t, process, `unknown error "NOPE"`, func(k *kproxykit.Kproxy) { k.Inject(`{kind: error, error: NOPE}`) })
	fails(t, process, "was not applied: matched 0, fired 0, applied 0; no request matched", func(k *kproxykit.Kproxy) {
		k.Inject(`{kind: delay, match: {api: Fetch}, delay: 1ms}`)
		k.AssertApplied()
	})
	fails(t, process, "expected an injected rule, got none", func(k *kproxykit.Kproxy) { k.AssertApplied() })
	fails(t, process, "filter, column", func(k *kproxykit.Kproxy) { k.Exchanges("~nothing") })
	if err := process.Close(); err != nil {
		t.Error(err)
	}
}

func TestWhatDoesNotStartSaysWhy(t *testing.T) {
	_, err := kproxykit.Open(kproxykit.Options{Rules: []string{"/no/such/file.yaml"}})
	if err == nil || !strings.Contains(err.Error(), "/no/such/file.yaml") {
		t.Error(err)
	}
	_, err = kproxykit.Open(kproxykit.Options{Command: "no-such-program-here"})
	if err == nil || !strings.Contains(err.Error(), "set KPROXY") || errors.Unwrap(err) == nil {
		t.Error(err)
	}
}
