package congreve.interop;

import com.alibaba.fastjson.JSON;
import com.alibaba.fastjson.JSONObject;
import java.io.BufferedReader;
import java.io.FileDescriptor;
import java.io.FileOutputStream;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.io.PrintWriter;
import java.io.StringWriter;
import java.nio.charset.StandardCharsets;
import java.util.Map;

/**
 * The official client and mqadmin behind one JVM: each line on standard input is a JSON request
 * {"do": NAME, ...}, each line on standard output its JSON answer. One JVM for a whole test run,
 * because a start costs seconds.
 */
public final class Driver {
    interface Command {
        JSONObject run(JSONObject request) throws Exception;
    }

    private static final Consumers CONSUMERS = new Consumers();
    private static final Orderly ORDERLY = new Orderly();
    private static final LitePulls LITE_PULLS = new LitePulls();
    private static final Transactions TRANSACTIONS = new Transactions();
    private static final Requests REQUESTS = new Requests();
    private static final Attempts ATTEMPTS = new Attempts();

    private static final Map<String, Command> COMMANDS = Map.ofEntries(
        Map.entry("send", Producers::send),
        Map.entry("producerStart", Producers::start),
        Map.entry("producerStop", Producers::stop),
        Map.entry("load", Producers::load),
        Map.entry("batch", Producers::batch),
        Map.entry("batchesFor", Producers::batchesFor),
        Map.entry("consumerStart", CONSUMERS::start),
        Map.entry("consumerAssignment", CONSUMERS::assignment),
        Map.entry("consumerWait", CONSUMERS::await),
        Map.entry("consumerPlaces", CONSUMERS::places),
        Map.entry("consumerStop", CONSUMERS::stop),
        Map.entry("transactionStart", TRANSACTIONS::start),
        Map.entry("transactionSend", TRANSACTIONS::send),
        Map.entry("transactionAnswer", TRANSACTIONS::answer),
        Map.entry("transactionChecks", TRANSACTIONS::checks),
        Map.entry("transactionStop", TRANSACTIONS::stop),
        Map.entry("request", REQUESTS::request),
        Map.entry("responderStart", REQUESTS::start),
        Map.entry("responderRelease", REQUESTS::release),
        Map.entry("responderSent", REQUESTS::sent),
        Map.entry("responderStop", REQUESTS::stop),
        Map.entry("pull", Pulls::pull),
        Map.entry("drain", Pulls::drain),
        Map.entry("longPoll", Pulls::longPoll),
        Map.entry("offsets", Pulls::offsets),
        Map.entry("litePullStart", LITE_PULLS::start),
        Map.entry("litePullPoll", LITE_PULLS::poll),
        Map.entry("litePullStop", LITE_PULLS::stop),
        Map.entry("view", Queries::view),
        Map.entry("viewUnique", Queries::viewUnique),
        Map.entry("uniqueIds", Queries::uniqueIds),
        Map.entry("query", Queries::query),
        Map.entry("retries", Retries::run),
        Map.entry("filter", Filters::filter),
        Map.entry("allocate", Shares::allocate),
        Map.entry("localOffsets", Shares::localOffsets),
        Map.entry("speed", Speed::produce),
        Map.entry("consume", Speed::consume),
        Map.entry("endToEnd", Latencies::endToEnd),
        Map.entry("firstMessages", Latencies::firstMessages),
        Map.entry("orderlyStart", ORDERLY::start),
        Map.entry("orderlyStop", ORDERLY::stop),
        Map.entry("attemptsStart", ATTEMPTS::start),
        Map.entry("attemptsTake", ATTEMPTS::take),
        Map.entry("attemptsStop", ATTEMPTS::stop),
        Map.entry("monitor", Monitor::run),
        Map.entry("mqadmin", Mqadmin::run));

    private Driver() {
    }

    public static void main(String[] args) throws IOException {
        PrintStream answers = new PrintStream(
            new FileOutputStream(FileDescriptor.out), true, StandardCharsets.UTF_8);
        System.setOut(System.err);
        BufferedReader requests = new BufferedReader(
            new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = requests.readLine(); line != null; line = requests.readLine()) {
            answers.println(answer(JSON.parseObject(line)).toJSONString());
        }
        // Client threads are not daemons: the end of the requests is the end of the process.
        Runtime.getRuntime().halt(0);
    }

    private static JSONObject answer(JSONObject request) {
        Command command = COMMANDS.get(request.getString("do"));
        if (command == null) {
            return new JSONObject().fluentPut("error", "no command " + request.getString("do"));
        }
        try {
            return command.run(request);
        } catch (Exception e) {
            StringWriter trace = new StringWriter();
            e.printStackTrace(new PrintWriter(trace));
            return new JSONObject().fluentPut("error", e.toString())
                .fluentPut("trace", trace.toString());
        }
    }
}
