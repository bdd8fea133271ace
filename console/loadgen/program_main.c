/* Command line, and the result as one JSON object on standard output. */
#include "loadgen.h"

#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char USAGE[] =
    "usage: loadgen --mode send|pull|sink --port N [options]\n"
    "  --host A          127.0.0.1\n"
    "  --topic NAME      loadgen; with --topics above 1, NAME-0000 and so on (they must exist)\n"
    "  --topics N        1\n"
    "  --queues N        4, of each topic\n"
    "  --connections N   4\n"
    "  --inflight N      32, requests a connection\n"
    "  --size N          128, body bytes of a message\n"
    "  --batch N         1; send: messages a request; pull: messages wanted (32)\n"
    "  --binary          binary headers instead of JSON\n"
    "  --delay-level N   0; send: messages are delivered later\n"
    "  --deliver-within S 0; send: each at a time of its own, 10 minutes ahead or up to S more\n"
    "  --sql EXPRESSION  pull: a SQL92 filter\n"
    "  --transaction     send: half messages, each committed when it is answered\n"
    "  --access-key K    sign requests as this account; not with --deliver-within\n"
    "                    (its secret: the environment variable CONGREVE_SECRET_KEY)\n"
    "  --tls             encrypted connections; the server's certificate is not checked\n"
    "  --warmup S        2, not measured\n"
    "  --duration S      5\n"
    "  --count N         so many requests instead of --duration, without warm-up\n"
    "  --rate N          open loop: requests a second, at fixed times from which latency counts\n"
    "sink answers sends and pulls with success and does nothing: the generator's own ceiling.\n";

enum { OPT_MODE = 256, OPT_HOST, OPT_PORT, OPT_TOPIC, OPT_TOPICS, OPT_QUEUES, OPT_CONNECTIONS,
       OPT_INFLIGHT, OPT_SIZE, OPT_BATCH, OPT_BINARY, OPT_DELAY_LEVEL, OPT_TRANSACTION, OPT_SQL,
       OPT_DELIVER_WITHIN, OPT_ACCESS_KEY, OPT_TLS,
       OPT_WARMUP, OPT_DURATION, OPT_COUNT, OPT_RATE };

static const struct option OPTIONS[] = {
    {"mode", 1, 0, OPT_MODE},         {"host", 1, 0, OPT_HOST},
    {"port", 1, 0, OPT_PORT},         {"topic", 1, 0, OPT_TOPIC},
    {"topics", 1, 0, OPT_TOPICS},     {"queues", 1, 0, OPT_QUEUES},
    {"connections", 1, 0, OPT_CONNECTIONS}, {"inflight", 1, 0, OPT_INFLIGHT},
    {"size", 1, 0, OPT_SIZE},         {"batch", 1, 0, OPT_BATCH},
    {"binary", 0, 0, OPT_BINARY},     {"delay-level", 1, 0, OPT_DELAY_LEVEL},
    {"warmup", 1, 0, OPT_WARMUP},     {"duration", 1, 0, OPT_DURATION},
    {"count", 1, 0, OPT_COUNT},       {"transaction", 0, 0, OPT_TRANSACTION},
    {"sql", 1, 0, OPT_SQL},           {"deliver-within", 1, 0, OPT_DELIVER_WITHIN},
    {"access-key", 1, 0, OPT_ACCESS_KEY}, {"tls", 0, 0, OPT_TLS},
    {"rate", 1, 0, OPT_RATE},
    {0, 0, 0, 0},
};

static int64_t whole(const char *text, int64_t least, int64_t most)
{
    char *end;
    long long value = strtoll(text, &end, 10);
    if (*end || end == text || value < least || value > most)
        die("%s: give a number from %lld to %lld", text, (long long)least, (long long)most);
    return value;
}

static double seconds(const char *text)
{
    char *end;
    double value = strtod(text, &end);
    if (*end || end == text || value < 0 || value > 86400)
        die("%s: give seconds", text);
    return value;
}

static double rate_of(const char *text)
{
    char *end;
    double value = strtod(text, &end);
    if (*end || end == text || !(value > 0 && value <= 1e8))
        die("%s: give requests a second", text);
    return value;
}

static run_mode mode_of(const char *text)
{
    if (strcmp(text, "send") == 0)
        return MODE_SEND;
    if (strcmp(text, "pull") == 0)
        return MODE_PULL;
    if (strcmp(text, "sink") == 0)
        return MODE_SINK;
    die("--mode %s: use send, pull or sink", text);
}

static settings parse(int argc, char **argv)
{
    settings s = {.mode = MODE_SEND, .host = "127.0.0.1", .port = -1, .topic = "loadgen",
                  .topics = 1, .queues = 4, .connections = 4, .inflight = 32, .size = 128,
                  .warmup_s = 2, .duration_s = 5};
    int option;
    while ((option = getopt_long(argc, argv, "", OPTIONS, NULL)) != -1) {
        switch (option) {
        case OPT_MODE: s.mode = mode_of(optarg); break;
        case OPT_HOST: s.host = optarg; break;
        case OPT_PORT: s.port = (int)whole(optarg, 0, 65535); break;
        case OPT_TOPIC: s.topic = optarg; break;
        case OPT_TOPICS: s.topics = (int)whole(optarg, 1, 10000); break;
        case OPT_QUEUES: s.queues = (int)whole(optarg, 1, 100000); break;
        case OPT_CONNECTIONS: s.connections = (int)whole(optarg, 1, 10000); break;
        case OPT_INFLIGHT: s.inflight = (int)whole(optarg, 1, 65536); break;
        case OPT_SIZE: s.size = (int)whole(optarg, 1, 4 << 20); break;
        case OPT_BATCH: s.batch = (int)whole(optarg, 1, 10000); break;
        case OPT_BINARY: s.binary = true; break;
        case OPT_TLS: s.tls = true; break;
        case OPT_DELAY_LEVEL: s.delay_level = (int)whole(optarg, 0, 18); break;
        case OPT_DELIVER_WITHIN: s.deliver_within_s = whole(optarg, 0, 1 << 30); break;
        case OPT_ACCESS_KEY: s.access_key = optarg; break;
        case OPT_SQL: s.sql = optarg; break;
        case OPT_TRANSACTION: s.transaction = true; break;
        case OPT_WARMUP: s.warmup_s = seconds(optarg); break;
        case OPT_DURATION: s.duration_s = seconds(optarg); break;
        case OPT_RATE: s.rate = rate_of(optarg); break;
        case OPT_COUNT: s.count = whole(optarg, 1, INT64_MAX); break;
        default: fputs(USAGE, stderr); exit(2);
        }
    }
    if (s.access_key)
        s.secret_key = getenv("CONGREVE_SECRET_KEY");
    if (s.port < 0 || optind != argc || strlen(s.topic) > 100
        || (s.rate > 0 && s.count)
        || !s.access_key != !s.secret_key || (s.access_key && s.deliver_within_s)) {
        fputs(USAGE, stderr);
        exit(2);
    }
    if (s.batch == 0)
        s.batch = s.mode == MODE_PULL ? 32 : 1;
    if (s.count)
        s.warmup_s = 0;
    if (s.access_key)
        sign_begin(s.secret_key);
    return s;
}

static void print(const results *r)
{
    printf("{\"requests\":%llu,\"messages\":%llu,\"bytes\":%llu,", (unsigned long long)r->requests,
           (unsigned long long)r->messages, (unsigned long long)r->bytes);
    printf("\"allRequests\":%llu,\"allMessages\":%llu,\"empty\":%llu,\"broken\":%llu,\"errors\":{",
           (unsigned long long)r->all_requests, (unsigned long long)r->all_messages,
           (unsigned long long)r->empty, (unsigned long long)r->broken);
    const char *comma = "";
    for (int code = 0; code < CODES; code++) {
        if (!r->errors[code])
            continue;
        printf("%s\"%d\":%llu", comma, code, (unsigned long long)r->errors[code]);
        comma = ",";
    }
    printf("},\"seconds\":%.6f,\"cpuSeconds\":%.6f,\"latency\":[", r->seconds, r->cpu_seconds);
    comma = "";
    for (size_t i = 0; i < HISTOGRAM_BUCKETS; i++) {
        if (!r->latency.counts[i])
            continue;
        printf("%s[%llu,%llu]", comma, (unsigned long long)histogram_lowest(i),
               (unsigned long long)r->latency.counts[i]);
        comma = ",";
    }
    printf("]}\n");
}

int loadgen_main(int argc, char **argv)
{
    optind = 1;
    settings s = parse(argc, argv);
    if (s.mode == MODE_SINK)
        return sink_run(&s);
    static results r;
    int status = client_run(&s, &r);
    print(&r);
    fflush(stdout);
    return status;
}
