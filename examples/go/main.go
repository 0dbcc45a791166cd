// Define a job, and read results, with franz-go. Its default partitioner is the right one (murmur2, as Java's).
//
//	go run . produce HOST:PORT PREFIX JOB_ID
//	go run . consume HOST:PORT PREFIX COUNT
package main

import (
	"context"
	"fmt"
	"log"
	"os"
	"strconv"

	"github.com/twmb/franz-go/pkg/kgo"
)

const job = `{"schedule": {"every": "PT1H"}, "target": "handler:send_report", "payload": {"from": "go"}}`

func main() {
	action, address, prefix, word := os.Args[1], os.Args[2], os.Args[3], os.Args[4]
	options := []kgo.Opt{kgo.SeedBrokers(address), kgo.RecordPartitioner(kgo.StickyKeyPartitioner(nil))}
	if action == "consume" {
		options = append(options,
			kgo.ConsumeTopics(prefix+"results"),
			kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
			kgo.FetchIsolationLevel(kgo.ReadCommitted())) // owners write results in transactions
	}
	client, err := kgo.NewClient(options...)
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	if action == "produce" {
		produce(client, prefix, word)
	} else {
		consume(client, word)
	}
}

func produce(client *kgo.Client, prefix, id string) {
	record := &kgo.Record{
		Topic:   prefix + "requests.public",
		Key:     []byte(id),
		Value:   []byte(job),
		Headers: []kgo.RecordHeader{{Key: "kind", Value: []byte("define")}},
	}
	sent, err := client.ProduceSync(context.Background(), record).First()
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("partition", sent.Partition)
}

func consume(client *kgo.Client, count string) {
	left, err := strconv.Atoi(count)
	if err != nil {
		log.Fatal(err)
	}
	for left > 0 {
		client.PollFetches(context.Background()).EachRecord(func(record *kgo.Record) {
			fmt.Println(string(record.Key), string(record.Value))
			left--
		})
	}
}
