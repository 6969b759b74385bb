// What the Go programs have in common, copied beside each when it is built: the arguments of tests/lab/matrix/scenario.py,
// how steps are told, and what the step traffic keeps.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"runtime/debug"
	"slices"
	"sort"
	"strings"
	"sync"
	"time"
)

const (
	count      = 30
	partitions = 3
	patience   = 90 * time.Second

	rounds     = 6
	each       = 5
	mostErrors = 100
	roundTime  = 10 * time.Second
	wholeTime  = 45 * time.Second
)

type line map[string]any

// step is a step of the scenario: its name, and what does it.
type step struct {
	name string
	do   func(context.Context) (line, error)
}

var bootstrap, topic, made, group, transactionalID string

func addresses() []string { return strings.Split(bootstrap, ",") }

// run does the steps that were asked for and tells each; traffic is done only if it is named.
func run(module string, steps ...step) {
	bootstrap, topic, made, group, transactionalID = os.Args[1], os.Args[2], os.Args[3], os.Args[4], os.Args[5]
	tell(step{"client", func(context.Context) (line, error) { return line{"version": version(module)}, nil }})
	only := os.Args[6:]
	for _, one := range steps {
		if slices.Contains(only, one.name) || len(only) == 0 && one.name != "traffic" {
			tell(one)
		}
	}
}

func tell(one step) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	told, err := one.do(ctx)
	if err != nil {
		told = line{"error": err.Error()}
	}
	told["step"] = one.name
	text, _ := json.Marshal(told)
	fmt.Println(string(text))
}

func version(path string) string {
	info, _ := debug.ReadBuildInfo()
	for _, module := range info.Deps {
		if module.Path == path {
			return module.Version
		}
	}
	return "unknown"
}

func sorted(set map[string]bool) []string {
	found := []string{}
	for name := range set {
		found = append(found, name)
	}
	sort.Strings(found)
	return found
}

// traffic is what was written and read, and what failed; limit is when it gives up.
type traffic struct {
	mutex        sync.Mutex
	began, limit time.Time
	sent, errors []string
	acknowledged [][]any
	failed       [][]string
	read         [][]any
}

func newTraffic() *traffic {
	now := time.Now()
	return &traffic{
		began: now, limit: now.Add(wholeTime), sent: []string{}, errors: []string{},
		acknowledged: [][]any{}, failed: [][]string{}, read: [][]any{},
	}
}

func (all *traffic) next() (values []string, places []int32) {
	for range each {
		number := len(all.sent)
		all.sent = append(all.sent, fmt.Sprintf("t-%d", number))
		values, places = append(values, all.sent[number]), append(places, int32(number%partitions))
	}
	return values, places
}

func (all *traffic) note(err error) {
	all.mutex.Lock()
	defer all.mutex.Unlock()
	if err != nil && len(all.errors) < mostErrors {
		all.errors = append(all.errors, err.Error())
	}
}

func (all *traffic) took(value []byte, partition int, offset int64) {
	all.mutex.Lock()
	defer all.mutex.Unlock()
	var text any
	if value != nil {
		text = string(value)
	}
	all.read = append(all.read, []any{text, partition, offset})
}

func (all *traffic) wasRead() bool {
	all.mutex.Lock()
	defer all.mutex.Unlock()
	found := map[any]bool{}
	for _, one := range all.read {
		found[one[0]] = true
	}
	for _, one := range all.acknowledged {
		if !found[one[0]] {
			return false
		}
	}
	return true
}

func (all *traffic) roundEnds() time.Time {
	end := time.Now().Add(roundTime)
	if end.After(all.limit) {
		return all.limit
	}
	return end
}

func (all *traffic) told() line {
	all.mutex.Lock()
	defer all.mutex.Unlock()
	return line{
		"sent": all.sent, "acknowledged": all.acknowledged, "failed": all.failed, "read": all.read,
		"errors": all.errors, "seconds": time.Since(all.began).Seconds(),
	}
}
