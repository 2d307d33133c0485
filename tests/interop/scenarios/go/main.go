// Command scenarios runs one Go client of Kafka through all that it can ask a cluster, and prints what it was told. The
// client is that of the build's tag, or all of them would be compiled for one.
//
//	go build -tags franz
//	scenarios BOOTSTRAP PREFIX PHASE
//
// The output is a JSON object: a result for each scenario, an error as # and its number where it is one of Kafka's.
package main

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"time"
)

const (
	records    = 20
	partitions = 4
	more       = 8 // records after the first members of a group are gone
	patience   = 180 * time.Second
)

var (
	bootstrap []string
	prefix    string
	results   = map[string]any{}
)

// What the file of a client sets: all its scenarios, and the number of an error of Kafka's.
var (
	play func(phase string)
	code func(err error) (int, bool)
)

func topic(name string) string { return prefix + "-" + name }

// tell runs a scenario; an error is its result.
func tell(scenario string, act func() (any, error)) {
	if _, there := results[scenario]; there {
		panic(scenario)
	}
	told, err := act()
	if err != nil {
		told = map[string]any{"error": word(err)}
	}
	results[scenario] = told
}

// word is Kafka's number of an error behind a #, or what the client calls it.
func word(err error) string {
	if number, is := code(err); is {
		return fmt.Sprint("#", number)
	}
	return strings.ReplaceAll(err.Error(), prefix, "")
}

// eventually asks until the answer shows what was done: Kafka's brokers learn of a change after its caller.
func eventually[T any](ask func() (T, error), holds func(T) bool) (T, error) {
	for end := time.Now().Add(patience); ; {
		found, err := ask()
		if err != nil || holds(found) || time.Now().After(end) {
			return found, err
		}
	}
}

func done(err error) (any, error) { return nil, err }

// outcome is that of a record: "" when it was acknowledged.
func outcome(err error) string {
	if err == nil {
		return ""
	}
	return word(err)
}

func main() {
	bootstrap, prefix = strings.Split(os.Args[1], ","), os.Args[2]
	play(os.Args[3])
	if err := json.NewEncoder(os.Stdout).Encode(results); err != nil {
		panic(err)
	}
}
