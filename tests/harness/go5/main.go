// The official gRPC client for Go: a producer of all types, a push and a simple consumer, with the
// commands of java5/GrpcClients.java.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	rocketmq "github.com/apache/rocketmq-clients/golang/v5"
	"github.com/apache/rocketmq-clients/golang/v5/credentials"
)

// texts are the bodies of messages, each once.
type texts struct {
	lock  sync.Mutex
	found map[string]bool
}

func (t *texts) add(text string) {
	t.lock.Lock()
	defer t.lock.Unlock()
	t.found[text] = true
}

func (t *texts) all() []string {
	t.lock.Lock()
	defer t.lock.Unlock()
	all := []string{}
	for text := range t.found {
		all = append(all, text)
	}
	return all
}

func main() {
	config := func(group string) *rocketmq.Config {
		return &rocketmq.Config{
			Endpoint:      os.Args[1],
			ConsumerGroup: group,
			Credentials:   &credentials.SessionCredentials{AccessKey: os.Args[2], AccessSecret: os.Args[3]},
		}
	}
	producer, err := rocketmq.NewProducer(config(""),
		rocketmq.WithTopics("Normal", "Fifo", "Delay", "Trans"),
		rocketmq.WithTransactionChecker(&rocketmq.TransactionChecker{
			Check: func(*rocketmq.MessageView) rocketmq.TransactionResolution { return rocketmq.COMMIT },
		}))
	check(err)
	check(producer.Start())

	pushed := &texts{found: map[string]bool{}}
	pushing, err := rocketmq.NewPushConsumer(config("pushed"),
		rocketmq.WithPushAwaitDuration(time.Second),
		rocketmq.WithPushSubscriptionExpressions(map[string]*rocketmq.FilterExpression{
			"Normal": rocketmq.SUB_ALL, "Fifo": rocketmq.SUB_ALL,
			"Delay": rocketmq.SUB_ALL, "Trans": rocketmq.SUB_ALL,
		}),
		rocketmq.WithPushMessageListener(&rocketmq.FuncMessageListener{
			Consume: func(view *rocketmq.MessageView) rocketmq.ConsumerResult {
				pushed.add(text(view))
				// The first delivery of one fails.
				if strings.HasPrefix(text(view), "n0") && view.GetDeliveryAttempt() == 1 {
					return rocketmq.FAILURE
				}
				return rocketmq.SUCCESS
			},
		}))
	check(err)
	check(pushing.Start())

	simple, err := rocketmq.NewSimpleConsumer(config("simple"),
		rocketmq.WithSimpleAwaitDuration(time.Second),
		rocketmq.WithSimpleSubscriptionExpressions(map[string]*rocketmq.FilterExpression{
			"Normal": rocketmq.NewFilterExpression("tag"),
		}))
	check(err)
	check(simple.Start())

	received := &texts{found: map[string]bool{}}
	out := json.NewEncoder(os.Stdout)
	lines := bufio.NewScanner(os.Stdin)
	for round := 0; lines.Scan(); {
		if strings.Contains(lines.Text(), "send") {
			// A client that has lost its connection fails for a while.
			for send(producer, round) != nil {
				time.Sleep(200 * time.Millisecond)
			}
			round++
			check(out.Encode(map[string]bool{"sent": true}))
			continue
		}
		receive(simple, received)
		check(out.Encode(map[string][]string{"pushed": pushed.all(), "received": received.all()}))
	}
}

func receive(simple rocketmq.SimpleConsumer, received *texts) {
	views, err := simple.Receive(context.Background(), 16, 30*time.Second)
	if err != nil {
		time.Sleep(200 * time.Millisecond)
		return
	}
	for _, view := range views {
		if simple.Ack(context.Background(), view) == nil {
			received.add(text(view))
		}
	}
}

func send(producer rocketmq.Producer, round int) error {
	ctx := context.Background()
	for i := range 3 {
		if _, err := producer.Send(ctx, message("Normal", fmt.Sprintf("n%d-%d", i, round))); err != nil {
			return err
		}
		ordered := message("Fifo", fmt.Sprintf("f%d-%d", i, round))
		ordered.SetMessageGroup("group")
		if _, err := producer.Send(ctx, ordered); err != nil {
			return err
		}
	}
	delayed := message("Delay", fmt.Sprintf("d-%d", round))
	delayed.SetDelayTimestamp(time.Now().Add(3 * time.Second))
	if _, err := producer.Send(ctx, delayed); err != nil {
		return err
	}
	for _, name := range []string{"t", "never", "asked"} {
		transaction := producer.BeginTransaction()
		half := message("Trans", fmt.Sprintf("%s-%d", name, round))
		if _, err := producer.SendWithTransaction(ctx, half, transaction); err != nil {
			return err
		}
		var err error
		switch name {
		case "t":
			err = transaction.Commit()
		case "never":
			err = transaction.RollBack()
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func message(topic, text string) *rocketmq.Message {
	made := &rocketmq.Message{Topic: topic, Body: []byte(text)}
	made.SetTag("tag")
	made.SetKeys("key-" + text)
	made.AddProperty("colour", "blue")
	return made
}

func text(view *rocketmq.MessageView) string {
	body := string(view.GetBody())
	tag := view.GetTag()
	whole := tag != nil && *tag == "tag" && len(view.GetKeys()) == 1 &&
		view.GetProperties()["colour"] == "blue"
	if !whole {
		return "damaged " + body
	}
	return body
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}
