package main

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"
)

var names atomic.Int64

// newName keeps clients of one process apart: the Go client shares one by its instance name.
func newName(kind string) string {
	return fmt.Sprintf("%s-%d", kind, names.Add(1))
}

// group is some push consumers of one group and what they have seen.
type group struct {
	members []rocketmq.PushConsumer
	guard   sync.Mutex
	seen    map[string]int
	taken   []int
	total   int
	last    time.Time
}

func startGroup(groups map[string]*group, r request) (answer, error) {
	g := &group{seen: map[string]int{}, taken: make([]int, r.Instances), last: time.Now()}
	groups[r.ID] = g
	selector := consumer.MessageSelector{}
	if r.Tag != "" {
		selector = consumer.MessageSelector{Type: consumer.TAG, Expression: r.Tag}
	}
	if r.SQL != "" {
		selector = consumer.MessageSelector{Type: consumer.SQL92, Expression: r.SQL}
	}
	model := consumer.Clustering
	if r.Broadcast {
		model = consumer.BroadCasting
	}
	for i := range r.Instances {
		c, err := rocketmq.NewPushConsumer(
			consumer.WithNameServer([]string{r.Namesrv}),
			consumer.WithCredentials(r.credentials()),
			consumer.WithGroupName(r.Group),
			consumer.WithInstance(newName("consumer")),
			consumer.WithConsumeFromWhere(consumer.ConsumeFromFirstOffset),
			consumer.WithConsumerOrder(r.Orderly),
			consumer.WithConsumerModel(model),
		)
		if err != nil {
			return nil, err
		}
		take := func(
			_ context.Context, messages ...*primitive.MessageExt,
		) (consumer.ConsumeResult, error) {
			g.take(i, messages)
			return consumer.ConsumeSuccess, nil
		}
		if err := c.Subscribe(r.Topic, selector, take); err != nil {
			return nil, err
		}
		if err := c.Start(); err != nil {
			return nil, err
		}
		g.members = append(g.members, c)
	}
	return answer{}, nil
}

func (g *group) take(member int, messages []*primitive.MessageExt) {
	g.guard.Lock()
	defer g.guard.Unlock()
	for _, message := range messages {
		number, _, _ := strings.Cut(string(message.Body), "|")
		g.seen[number]++
		g.taken[member]++
		g.total++
	}
	g.last = time.Now()
}

func (g *group) report() answer {
	g.guard.Lock()
	defer g.guard.Unlock()
	return answer{"distinct": len(g.seen), "total": g.total, "perInstance": g.taken}
}

// waitGroup waits until so many different messages came and none for quietMs.
func waitGroup(groups map[string]*group, r request) (answer, error) {
	g := groups[r.ID]
	end := time.Now().Add(time.Duration(r.TimeoutMs) * time.Millisecond)
	quiet := time.Duration(r.QuietMs) * time.Millisecond
	for time.Now().Before(end) {
		g.guard.Lock()
		done := len(g.seen) >= r.Expected && time.Since(g.last) >= quiet
		g.guard.Unlock()
		if done {
			break
		}
		time.Sleep(20 * time.Millisecond)
	}
	return g.report(), nil
}

func stopGroup(groups map[string]*group, r request) (answer, error) {
	g := groups[r.ID]
	delete(groups, r.ID)
	for _, member := range g.members {
		if err := member.Shutdown(); err != nil {
			return nil, err
		}
	}
	report := g.report()
	seen := make([]string, 0, len(g.seen))
	for number := range g.seen {
		seen = append(seen, number)
	}
	report["seen"] = seen
	return report, nil
}
