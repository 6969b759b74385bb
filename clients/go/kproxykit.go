// Package kproxykit puts kproxy between a test's Kafka client and a mock cluster, or a cluster of its own, as a process
// that ends with the test, and has its faults put in, waited for and looked at.
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

// Patience is how long a wait may take, and a sixth of how long a start may, of which a second is usual.
const Patience = 30 * time.Second

const (
	ttl      = "1h"             // after which a rule goes by itself, should a test not end
	longest  = 60 * time.Second // that kproxy waits for exchanges at a time
	pageSize = 1000
)

// Options of a process. The zero value is three mock brokers without topics; topics are made when a client asks for them.
type Options struct {
	Topics   map[string]int // partitions by name
	Brokers  int            // of the mock cluster
	Upstream string         // host:port,… of brokers to stand in front of, in place of a mock cluster
	Rules    []string       // rule files and folders, in force from the start
	Seed     int            // of all chances; 0: drawn
	Command  string         // program to run; by default the environment's KPROXY, or kproxy on the PATH
}

// Process is a running kproxy, which several tests may share.
type Process struct {
	Bootstrap string // host:port for clients
	Admin     string // URL of the admin API
	command   *exec.Cmd
	input     io.Closer
}

// Open starts a kproxy. It ends by Close, and with this process, however that ends.
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
	input, err := command.StdinPipe() // it ends when this does
	if err != nil {
		return nil, err
	}
	output, err := command.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := command.Start(); err != nil {
		return nil, fmt.Errorf("kproxy cannot be started (set KPROXY, or have it on the PATH): %w", err)
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

// Close ends the process and waits for its end.
func (p *Process) Close() error {
	p.input.Close()
	return p.command.Wait()
}

// Start opens a kproxy for one test, and ends it with that.
func Start(t testing.TB, options Options) *Kproxy {
	t.Helper()
	process, err := Open(options)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { process.Close() })
	return process.For(t)
}

// Kproxy is one test's view of a process: its rules, which go with the test, and what went through since it began.
type Kproxy struct {
	*Process
	t     testing.TB
	place string
	rules []*Rule
}

// For returns a test's view of a process that it shares with others, one after the other.
func (p *Process) For(t testing.TB) *Kproxy {
	t.Helper()
	k := &Kproxy{Process: p, t: t}
	k.place = k.page(url.Values{"limit": {"1"}}).Place
	return k
}

// Rule is a rule that a test has put in.
type Rule struct {
	Name string
	k    *Kproxy
}

// Counters say how far a rule came: its selectors held, its trigger let it act, what it did has gone out.
type Counters struct{ Matched, Fired, Applied int }

// Inject puts a rule into force, for the next frame of every connection; at the end of the test it is removed. The rule
// is YAML as in a rule file, without a name: {kind: delay, match: {api: Produce}, delay: 50ms}.
func (k *Kproxy) Inject(rule string) *Rule {
	k.t.Helper()
	made := &Rule{fmt.Sprintf("%s %d", k.t.Name(), len(k.rules)+1), k}
	query := url.Values{"origin": {"test"}, "ttl": {ttl}}
	k.must("POST", made.path("", query), "application/yaml", rule, nil)
	k.rules = append(k.rules, made)
	k.t.Cleanup(made.Remove)
	return made
}

// Remove takes the rule out before the test ends; once more is no mistake.
func (r *Rule) Remove() {
	var refused *Refusal
	err := r.k.ask("DELETE", r.path("", nil), "", "", nil)
	if err != nil && !(errors.As(err, &refused) && refused.Code == "no_such_rule") {
		r.k.t.Error(err)
	}
}

// Wait returns as soon as the rule has fired so often, and fails the test after Patience.
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

// Counters returns the rule's counters of this moment.
func (r *Rule) Counters() (found Counters) {
	r.k.t.Helper()
	r.k.must("GET", r.path("", nil), "", "", &found)
	return found
}

func (r *Rule) path(operation string, query url.Values) string {
	return "/api/rules/" + url.PathEscape(r.Name) + operation + "?" + query.Encode()
}

// AssertApplied fails the test unless each of these rules, or each that it has put in, changed something that has gone
// out: a test of a failure that never happened proves nothing.
func (k *Kproxy) AssertApplied(rules ...*Rule) {
	k.t.Helper()
	if len(rules) == 0 {
		rules = k.rules
	}
	if len(rules) == 0 {
		k.t.Fatal("this test has put in no rule")
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

// Exchange is a request with its response: columns of kproxy's rows by name, such as api, topic, errors and latency.
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

// Exchanges returns what went through since the test began and is over, oldest first, where the filter holds: the
// language of kproxy tail, such as "~k produce ~t orders"; empty: everything.
func (k *Kproxy) Exchanges(filter string) []Exchange {
	k.t.Helper()
	return k.all(url.Values{"filter": {filter}})
}

// Await returns the same as soon as there are so many, and fails the test after Patience.
func (k *Kproxy) Await(filter string, count int) []Exchange {
	k.t.Helper()
	wait := min(Patience, longest).String()
	query := url.Values{"filter": {filter}, "wait": {wait}, "count": {strconv.Itoa(count)}, "after": {k.place}, "limit": {"1"}}
	if !k.page(query).Reached {
		k.t.Fatalf("%q holds for fewer than %d exchanges after %s", filter, count, wait)
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
			k.t.Fatal("exchanges of this test are not kept any more: a process keeps 20,000")
		}
		for _, row := range page.Rows {
			exchange := Exchange{}
			for at, name := range page.Columns {
				exchange[name] = row[at]
			}
			if exchange["outcome"] != nil { // else it is under way
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

// Refusal is an answer of the admin API that says what is wrong.
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
