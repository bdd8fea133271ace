// Checks histories of clients with porcupine: each queue is an append-only log, and each group's
// offset in a queue is a register.
//
// Arguments are files with a JSON object a line, see recorder.py. Prints a line for each file, and
// ends with 1 if one of them is not linearizable, or was not decided within the time limit.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"slices"
	"time"

	"github.com/anishathalye/porcupine"
)

const limit = 2 * time.Minute

type operation struct {
	Client int     `json:"client"`
	Kind   string  `json:"kind"`   // append, read, commit, committed
	Queue  string  `json:"queue"`  // of a register: the group and the queue
	Values []int64 `json:"values"` // of an append: one
	Offset int64   `json:"offset"` // of the first value; the committed one; -1: none, or unknown
	Call   int64   `json:"call"`   // ns
	Return int64   `json:"return"` // ns; 0: no answer
}

func (o operation) isOfLog() bool { return o.Kind == "append" || o.Kind == "read" }

// The values of a queue so far.
var appendOnlyLog = porcupine.Model{
	Init: func() interface{} { return []int64{} },
	Step: func(state, input, _ interface{}) (bool, interface{}) {
		log, o := state.([]int64), input.(operation)
		if o.Kind == "append" {
			return o.Offset == int64(len(log)), append(slices.Clip(log), o.Values...)
		}
		end := o.Offset + int64(len(o.Values))
		return end <= int64(len(log)) && slices.Equal(log[o.Offset:end], o.Values), log
	},
	Equal: func(one, other interface{}) bool {
		return slices.Equal(one.([]int64), other.([]int64))
	},
	Hash: func(state interface{}) uint64 { return uint64(len(state.([]int64))) },
}

// A committed offset; -1 before the first one.
var register = porcupine.Model{
	Init: func() interface{} { return int64(-1) },
	Step: func(state, input, _ interface{}) (bool, interface{}) {
		o := input.(operation)
		if o.Kind == "commit" {
			return true, o.Offset
		}
		return o.Offset == state.(int64), state
	},
}

func read(name string) (map[string][]operation, error) {
	file, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	found := map[string][]operation{}
	lines := bufio.NewScanner(file)
	lines.Buffer(nil, 1<<30)
	for lines.Scan() {
		var o operation
		if err := json.Unmarshal(lines.Bytes(), &o); err != nil {
			return nil, err
		}
		found[o.Queue] = append(found[o.Queue], o)
	}
	return found, lines.Err()
}

// An append without an answer happened if a read has its value, which is unique, and then at the
// An append without an answer happened if a read has its value, which is unique, and then at the
// place of that read, at any time after its call. Else it may be left out.
func completed(history []operation) []porcupine.Operation {
	places := map[int64]int64{}
	for _, o := range history {
		for at, value := range o.Values {
			if o.Kind == "read" {
				places[value] = o.Offset + int64(at)
			}
		}
	}
	var all []porcupine.Operation
	for _, o := range history {
		if o.Return == 0 {
			o.Return = math.MaxInt64
			if o.Kind == "append" {
				place, isThere := places[o.Values[0]]
				if !isThere {
					continue
				}
				o.Offset = place
			}
		}
		all = append(all, porcupine.Operation{
			ClientId: o.Client, Input: o, Call: o.Call, Return: o.Return,
		})
	}
	return all
}

// What is wrong in a history, or nothing.
func faults(queues map[string][]operation) []string {
	var wrong []string
	for queue, history := range queues {
		model := register
		if history[0].isOfLog() {
			model = appendOnlyLog
		}
		result := porcupine.CheckOperationsTimeout(model, completed(history), limit)
		if result != porcupine.Ok {
			wrong = append(wrong, fmt.Sprintf("%s is %s", queue, result))
		}
	}
	return wrong
}

func main() {
	code := 0
	for _, name := range os.Args[1:] {
		queues, err := read(name)
		if err != nil {
			fmt.Println(name, err)
			os.Exit(2)
		}
		count := 0
		for _, history := range queues {
			count += len(history)
		}
		if wrong := faults(queues); wrong != nil {
			fmt.Println(name, count, "operations, not linearizable:", wrong)
			code = 1
		} else {
			fmt.Println(name, count, "operations, linearizable")
		}
	}
	os.Exit(code)
}
