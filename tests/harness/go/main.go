// The official Go client v2 behind one process: each line on standard input is a JSON request
// {"do": NAME, ...}, each line on standard output its JSON answer.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"

	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/rlog"
)

type request struct {
	Do        string   `json:"do"`
	Namesrv   string   `json:"namesrv"`
	Topic     string   `json:"topic"`
	Group     string   `json:"group"`
	Mode      string   `json:"mode"`
	Tag       string   `json:"tag"`
	SQL       string   `json:"sql"`
	Keys      string   `json:"keys"`
	ID        string   `json:"id"`
	Count     int      `json:"count"`
	Size      int      `json:"size"`
	Instances int      `json:"instances"`
	Expected  int      `json:"expected"`
	TimeoutMs int64    `json:"timeoutMs"`
	QuietMs   int64    `json:"quietMs"`
	PauseMs   int64    `json:"pauseMs"`
	Locals    []string `json:"locals"`
	Answer    string   `json:"answer"`
	Orderly   bool     `json:"orderly"`
	Broadcast bool     `json:"broadcast"`

	MaxReconsumeTimes int32 `json:"maxReconsumeTimes"`

	AccessKey string `json:"accessKey"`
	SecretKey string `json:"secretKey"`
}

// credentials of the request's account; without one the client does not sign.
func (r request) credentials() primitive.Credentials {
	return primitive.Credentials{AccessKey: r.AccessKey, SecretKey: r.SecretKey}
}

type answer map[string]any

func main() {
	rlog.SetLogLevel("error")
	if err := rlog.SetOutputPath("go-client.log"); err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
	groups := map[string]*group{}
	senders := map[string]*sender{}
	commands := map[string]func(request) (answer, error){
		"load":          load,
		"transact":      transact,
		"retries":       retries,
		"attemptsStart": func(r request) (answer, error) { return startAttempts(senders, r) },
		"attemptsStop":  func(r request) (answer, error) { return stopAttempts(senders, r) },
		"consumerStart": func(r request) (answer, error) { return startGroup(groups, r) },
		"consumerWait":  func(r request) (answer, error) { return waitGroup(groups, r) },
		"consumerStop":  func(r request) (answer, error) { return stopGroup(groups, r) },
	}
	out := json.NewEncoder(os.Stdout)
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, 1<<24)
	for lines.Scan() {
		if err := out.Encode(run(commands, lines.Bytes())); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
}

func run(commands map[string]func(request) (answer, error), line []byte) answer {
	var r request
	if err := json.Unmarshal(line, &r); err != nil {
		return answer{"error": err.Error()}
	}
	command, found := commands[r.Do]
	if !found {
		return answer{"error": "no command " + r.Do}
	}
	result, err := command(r)
	if err != nil {
		return answer{"error": err.Error()}
	}
	return result
}
