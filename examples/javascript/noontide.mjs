// Define a job, and read results, with KafkaJS. Its default partitioner is the right one (murmur2, as Java's).
//   node noontide.mjs produce HOST:PORT PREFIX JOB_ID
//   node noontide.mjs consume HOST:PORT PREFIX COUNT
import kafkajs from "kafkajs";

const { Kafka, Partitioners, logLevel } = kafkajs;
const [action, address, prefix, word] = process.argv.slice(2);
const kafka = new Kafka({ clientId: "javascript-example", brokers: [address], logLevel: logLevel.ERROR });

if (action === "produce") {
  const producer = kafka.producer({ createPartitioner: Partitioners.DefaultPartitioner });
  await producer.connect();
  const job = { schedule: { every: "PT1H" }, target: "handler:send_report", payload: { from: "javascript" } };
  const [sent] = await producer.send({
    topic: `${prefix}requests.public`,
    acks: -1,
    messages: [{ key: word, value: JSON.stringify(job), headers: { kind: "define" } }],
  });
  console.log(`partition ${sent.partition}`);
  await producer.disconnect();
} else {
  // KafkaJS reads committed records unless it is told otherwise.
  const consumer = kafka.consumer({ groupId: `javascript-example-${process.pid}` });
  await consumer.connect();
  await consumer.subscribe({ topics: [`${prefix}results`], fromBeginning: true });
  let left = Number(word);
  await consumer.run({
    eachMessage: async ({ message }) => {
      console.log(`${message.key} ${message.value}`);
      if (--left === 0) setTimeout(() => consumer.disconnect(), 0);
    },
  });
}
