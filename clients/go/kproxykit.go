// Package kproxykit starts kproxy as a process between the Kafka client of a test and a mock cluster or other brokers.
// Tests inject faults, wait for them, and read exchanges.
package kproxykit

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// Patience is the timeout of waits. The timeout of a start is six times as long.
const Patience = 30 * time.Second

const (
	ttl      = "1h"             // lifetime of a rule whose test was killed
	longest  = 60 * time.Second // of one wait for exchanges
	pageSize = 1000
)

// Options of a process. The zero value starts three mock brokers, which create topics at first use.
type Options struct {
	Topics   map[string]int // partitions by name
	Brokers  int            // of the mock cluster
	Upstream string         // host:port,… of brokers, instead of a mock cluster
	Rules    []string       // rule files and folders that apply from the start
	Seed     int            // of random choices; 0: random
	Command  string         // command; default: the environment variable KPROXY, or kproxy on the PATH
}

// Process is a process of kproxy. Several tests can share it.
type Process struct {
	Bootstrap string // host:port for clients
	Admin     string // URL of the admin API
	command   *exec.Cmd
	input     io.Closer
}

// Open starts a process. It stops at Close, and when this process ends.
func Open(options Options) (*Process, error) {
	program := options.Command
	if program == "" {
		program = os.Getenv("KPROXY")
	}
	if program == "" {
		program = "kproxy"
	}
	words := append(strings.Fields(program), "mock", "--until-eof", "--admin", "127.0.0.1:0")
	for name, partitions := range options.Topics {
		words = append(words, "--topic", fmt.Sprintf("%s:%d", name, partitions))
	}
	if options.Brokers > 0 {
		words = append(words, "--brokers", strconv.Itoa(options.Brokers))
	}
	if options.Upstream != "" {
		words = append(words, "--upstream", options.Upstream)
	}
	for _, path := range options.Rules {
		words = append(words, "--rules", path)
	}
	if options.Seed != 0 {
		words = append(words, "--seed", strconv.Itoa(options.Seed))
	}
	command := exec.Command(words[0], words[1:]...)
	var said bytes.Buffer
	command.Stderr = &said
	input, err := command.StdinPipe() // closes when this process ends
	if err != nil {
		return nil, err
	}
	output, err := command.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := command.Start(); err != nil {
		return nil, fmt.Errorf("cannot start kproxy, set KPROXY or add kproxy to the PATH: %w", err)
	}
	late := time.AfterFunc(6*Patience, func() { command.Process.Kill() })
	lines := bufio.NewScanner(output)
	process := &Process{command: command, input: input}
	for _, line := range []*string{&process.Bootstrap, &process.Admin} {
		if lines.Scan() {
			*line = lines.Text()
		}
	}
	if !late.Stop() || process.Admin == "" {
		command.Process.Kill()
		command.Wait()
		return nil, fmt.Errorf("kproxy did not start: %s", strings.TrimSpace(said.String()))
	}
	return process, nil
}

// Close stops the process and waits until it has stopped.
func (p *Process) Close() error {
	p.input.Close()
	return p.command.Wait()
}

// Start starts a process for one test and stops it at the end of the test.
func Start(t testing.TB, options Options) *Kproxy {
	t.Helper()
	process, err := Open(options)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { process.Close() })
	return process.For(t)
}

// Kproxy is the view of one test: its rules, removed at the end of the test, and the exchanges since its start.
type Kproxy struct {
	*Process
	t     testing.TB
	place string
	rules []*Rule
}

// For returns the view of one test on a process that several tests share, one after the other.
func (p *Process) For(t testing.TB) *Kproxy {
	t.Helper()
	k := &Kproxy{Process: p, t: t}
	k.place = k.page(url.Values{"limit": {"1"}}).Place
	return k
}

// Rule is a rule of a test.
type Rule struct {
	Name string
	k    *Kproxy
}

// Counters of a rule: its selectors matched, its trigger fired, its change was sent.
type Counters struct{ Matched, Fired, Applied int }

// Inject applies a rule from the next frame of each connection on, until the end of the test. The rule is YAML as in a
// rule file, without a name: {kind: delay, match: {api: Produce}, delay: 50ms}.
func (k *Kproxy) Inject(rule string) *Rule {
	k.t.Helper()
	made := &Rule{fmt.Sprintf("%s %d", k.t.Name(), len(k.rules)+1), k}
	query := url.Values{"origin": {"test"}, "ttl": {ttl}}
	k.must("POST", made.path("", query), "application/yaml", rule, nil)
	k.rules = append(k.rules, made)
	k.t.Cleanup(made.Remove)
	return made
}

// Remove removes the rule before the end of the test. It is not an error if the rule was removed before.
func (r *Rule) Remove() {
	var refused *Refusal
	err := r.k.ask("DELETE", r.path("", nil), "", "", nil)
	if err != nil && !(errors.As(err, &refused) && refused.Code == "no_such_rule") {
		r.k.t.Error(err)
	}
}

// Wait returns when the rule has fired this number of times. It fails the test after Patience.
func (r *Rule) Wait(hits int) Counters {
	r.k.t.Helper()
	var found struct {
		Reached bool
		Rule    Counters
	}
	query := url.Values{"hits": {strconv.Itoa(hits)}, "timeout": {Patience.String()}}
	r.k.must("POST", r.path("/wait", query), "application/json", "", &found)
	if !found.Reached {
		r.k.t.Fatalf("the rule %q has fired %d of %d times after %s", r.Name, found.Rule.Fired, hits, Patience)
	}
	return found.Rule
}

// Counters returns the current counters of the rule.
func (r *Rule) Counters() (found Counters) {
	r.k.t.Helper()
	r.k.must("GET", r.path("", nil), "", "", &found)
	return found
}

func (r *Rule) path(operation string, query url.Values) string {
	return "/api/rules/" + url.PathEscape(r.Name) + operation + "?" + query.Encode()
}

// AssertApplied fails the test unless each of these rules, or each injected one, changed something that was sent. A test
// without its fault proves nothing.
func (k *Kproxy) AssertApplied(rules ...*Rule) {
	k.t.Helper()
	if len(rules) == 0 {
		rules = k.rules
	}
	if len(rules) == 0 {
		k.t.Fatal("expected an injected rule, got none")
	}
	for _, rule := range rules {
		if c := rule.Counters(); c.Applied == 0 {
			k.t.Errorf("the rule %q was not applied: matched %d, fired %d, applied 0; %s", rule.Name, c.Matched, c.Fired, rule.why(c))
		}
	}
}

// why returns the stage at which a rule stopped.
func (r *Rule) why(c Counters) string {
	if c.Matched == 0 {
		return "no request matched"
	}
	if c.Fired == 0 {
		return "its trigger did not fire"
	}
	for _, one := range r.k.Exchanges("outcome == unanswered or outcome == closed") {
		if names, _ := one["rules"].([]any); slices.Contains(names, any(r.Name)) {
			return "the connection closed before the response was sent"
		}
	}
	return "its requests are still unanswered, or it had nothing to change"
}

// Exchange is a request with its response: columns of the live view by name, such as api, topic, errors and latency.
type Exchange map[string]any

// API returns the name of the request's API.
func (e Exchange) API() string { name, _ := e["api"].(string); return name }

// Errors returns the names of the errors in the response.
func (e Exchange) Errors() []string {
	var names []string
	for _, name := range e["errors"].([]any) {
		names = append(names, name.(string))
	}
	return names
}

// Latency returns the time from the request to its response.
func (e Exchange) Latency() time.Duration {
	milliseconds, _ := e["latency"].(float64)
	return time.Duration(milliseconds * float64(time.Millisecond))
}

// Exchanges returns the finished exchanges of the test that match, oldest first. The filter is in the language of kproxy
// tail, such as "~k produce ~t orders"; an empty one matches all.
func (k *Kproxy) Exchanges(filter string) []Exchange {
	k.t.Helper()
	return k.all(url.Values{"filter": {filter}})
}

// Await returns the same when this number of exchanges matches. It fails the test after Patience.
func (k *Kproxy) Await(filter string, count int) []Exchange {
	k.t.Helper()
	wait := min(Patience, longest).String()
	query := url.Values{"filter": {filter}, "wait": {wait}, "count": {strconv.Itoa(count)}, "after": {k.place}, "limit": {"1"}}
	if !k.page(query).Reached {
		k.t.Fatalf("filter %q: expected %d exchanges in %s, got fewer", filter, count, wait)
	}
	return k.Exchanges(filter)
}

type page struct {
	Columns []string
	Rows    [][]any
	Next    string
	Place   string
	Gone    *int
	Reached bool
}

func (k *Kproxy) page(query url.Values) (found page) {
	k.t.Helper()
	k.must("GET", "/api/exchanges?"+query.Encode(), "", "", &found)
	return found
}

func (k *Kproxy) all(query url.Values) []Exchange {
	k.t.Helper()
	query.Set("after", k.place)
	query.Set("limit", strconv.Itoa(pageSize))
	var found []Exchange
	for {
		page := k.page(query)
		if page.Gone == nil || *page.Gone > 0 {
			k.t.Fatal("expected all exchanges of the test, got a part: a process keeps the last 20,000, and at most 64 MiB")
		}
		for _, row := range page.Rows {
			exchange := Exchange{}
			for at, name := range page.Columns {
				exchange[name] = row[at]
			}
			if exchange["outcome"] != nil { // nil: not finished
				found = append(found, exchange)
			}
		}
		if page.Next == "" {
			slices.Reverse(found)
			return found
		}
		query.Set("before", page.Next)
	}
}

// Refusal is an error response of the admin API.
type Refusal struct {
	Code, Message string
	Mistakes      []struct{ Where, Message string }
}

func (r *Refusal) Error() string {
	text := "kproxy: " + r.Message
	for _, one := range r.Mistakes {
		text += "\n  " + one.Where + ": " + one.Message
	}
	return text
}

func (k *Kproxy) must(method, path, media, body string, into any) {
	k.t.Helper()
	if err := k.ask(method, path, media, body, into); err != nil {
		k.t.Fatal(err)
	}
}

func (k *Kproxy) ask(method, path, media, body string, into any) error {
	request, err := http.NewRequest(method, k.Admin+path, strings.NewReader(body))
	if err != nil {
		return err
	}
	if media != "" {
		request.Header.Set("Content-Type", media)
	}
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	if answer.StatusCode >= 400 {
		refused := struct{ Error *Refusal }{&Refusal{Message: answer.Status}}
		json.NewDecoder(answer.Body).Decode(&refused)
		return refused.Error
	}
	if into == nil {
		_, err = io.Copy(io.Discard, answer.Body)
		return err
	}
	return json.NewDecoder(answer.Body).Decode(into)
}
