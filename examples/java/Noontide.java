// Define a job, and read results, with Apache Kafka's own client. Its default partitioner is the right one.
//   java -cp kafka-clients.jar:slf4j-api.jar Noontide.java produce HOST:PORT PREFIX JOB_ID
//   java -cp kafka-clients.jar:slf4j-api.jar Noontide.java consume HOST:PORT PREFIX COUNT
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.List;
import java.util.Properties;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

public class Noontide {
    public static void main(String[] args) throws Exception {
        var settings = new Properties();
        settings.put("bootstrap.servers", args[1]);
        if (args[0].equals("produce")) {
            produce(settings, args[2], args[3]);
        } else {
            consume(settings, args[2], Integer.parseInt(args[3]));
        }
    }

    static void produce(Properties settings, String prefix, String jobId) throws Exception {
        var job = "{\"schedule\": {\"every\": \"PT1H\"}, \"target\": \"handler:send_report\", \"payload\": {\"from\": \"java\"}}";
        try (var producer = new KafkaProducer<>(settings, new StringSerializer(), new StringSerializer())) {
            var record = new ProducerRecord<>(prefix + "requests.public", jobId, job);
            record.headers().add("kind", "define".getBytes(StandardCharsets.UTF_8));
            System.out.println("partition " + producer.send(record).get().partition());
        }
    }

    static void consume(Properties settings, String prefix, int count) {
        settings.put("group.id", "java-example-" + ProcessHandle.current().pid());
        settings.put("auto.offset.reset", "earliest");
        settings.put("isolation.level", "read_committed"); // owners write results in transactions
        try (var consumer = new KafkaConsumer<>(settings, new StringDeserializer(), new StringDeserializer())) {
            consumer.subscribe(List.of(prefix + "results"));
            for (int seen = 0; seen < count; ) {
                for (var record : consumer.poll(Duration.ofMillis(500))) {
                    System.out.println(record.key() + " " + record.value());
                    seen++;
                }
            }
        }
    }
}
