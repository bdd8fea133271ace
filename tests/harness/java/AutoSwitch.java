import com.alibaba.fastjson.JSON;
import com.alibaba.fastjson.JSONObject;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.net.InetSocketAddress;
import java.nio.charset.StandardCharsets;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.rocketmq.common.BrokerConfig;
import org.apache.rocketmq.common.message.MessageDecoder;
import org.apache.rocketmq.common.message.MessageExtBrokerInner;
import org.apache.rocketmq.store.DefaultMessageStore;
import org.apache.rocketmq.store.config.BrokerRole;
import org.apache.rocketmq.store.config.FlushDiskType;
import org.apache.rocketmq.store.config.MessageStoreConfig;
import org.apache.rocketmq.store.ha.autoswitch.AutoSwitchHAService;
import org.apache.rocketmq.store.stats.BrokerStatsManager;

/**
 * A store of RocketMQ 5 with its AutoSwitch replication, without a broker, driven by JSON lines.
 * Java runs this file as it is: it needs the libraries of RocketMQ 5 before those of 4.9.4.
 */
public class AutoSwitch {
    private final MessageStoreConfig config = new MessageStoreConfig();
    private final DefaultMessageStore store;
    private final AutoSwitchHAService replication;
    private final long id;

    private AutoSwitch(JSONObject request) throws Exception {
        id = request.getLongValue("id");
        String folder = request.getString("folder");
        config.setStorePathRootDir(folder);
        config.setStorePathCommitLog(folder + "/commitlog");
        config.setStorePathEpochFile(folder + "/epochFileCheckpoint");
        config.setMappedFileSizeCommitLog(request.getIntValue("segment"));
        config.setMappedFileSizeConsumeQueue(20 * 1000);
        config.setMaxHashSlotNum(1000);
        config.setMaxIndexNum(4000);
        config.setFlushDiskType(FlushDiskType.ASYNC_FLUSH);
        config.setHaListenPort(request.getIntValue("port"));
        config.setHaSendHeartbeatInterval(200);
        config.setBrokerRole(BrokerRole.SLAVE);
        BrokerConfig broker = new BrokerConfig();
        broker.setBrokerId(id);
        broker.setEnableControllerMode(true);
        store = new DefaultMessageStore(
            config, new BrokerStatsManager("store", true), null, broker, new ConcurrentHashMap<>());
        if (!store.load()) {
            throw new IllegalStateException("the store does not load");
        }
        store.start();
        replication = (AutoSwitchHAService) store.getHaService();
        replication.setLocalBrokerId(id);
        replication.registerSyncStateSetChangedListener(replication::setSyncStateSet);
    }

    private Object run(JSONObject request) throws Exception {
        switch (request.getString("do")) {
            case "lead":
                config.setBrokerRole(BrokerRole.ASYNC_MASTER);
                replication.setSyncStateSet(new HashSet<>(List.of(id)));
                return Map.of("done", replication.changeToMaster(request.getIntValue("epoch")));
            case "follow":
                config.setBrokerRole(BrokerRole.SLAVE);
                boolean done = replication.changeToSlave("", request.getIntValue("epoch"), id);
                replication.updateHaMasterAddress(request.getString("address"));
                return Map.of("done", done);
            case "put":
                for (int number = 0; number < request.getIntValue("count"); number++) {
                    put(request.getString("text") + number);
                }
                return Map.of();
            default:
                return Map.of(
                    "end", store.getMaxPhyOffset(),
                    "confirmed", store.getConfirmOffset(),
                    "messages", store.getMaxOffsetInQueue("T", 0),
                    "inSync", replication.getLocalSyncStateSet(),
                    "epochs", replication.getEpochEntries().stream()
                        .map(each -> List.of(each.getEpoch(), each.getStartOffset())).toList());
        }
    }

    private void put(String text) {
        MessageExtBrokerInner message = new MessageExtBrokerInner();
        message.setTopic("T");
        message.setQueueId(0);
        message.setBody(text.getBytes(StandardCharsets.UTF_8));
        message.setBornTimestamp(System.currentTimeMillis());
        message.setBornHost(new InetSocketAddress("127.0.0.1", 1));
        message.setStoreHost(new InetSocketAddress("127.0.0.1", 2));
        message.setKeys(text);
        String properties = MessageDecoder.messageProperties2String(message.getProperties());
        message.setPropertiesString(properties);
        if (!store.putMessage(message).isOk()) {
            throw new IllegalStateException("the message is refused");
        }
    }

    public static void main(String[] arguments) throws Exception {
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
        AutoSwitch made = null;
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            JSONObject request = JSON.parseObject(line);
            Object answer;
            try {
                if (made == null) {
                    made = new AutoSwitch(request);
                    answer = Map.of();
                } else {
                    answer = made.run(request);
                }
            } catch (Throwable error) {
                error.printStackTrace();
                answer = Map.of("error", error.toString());
            }
            System.out.println(JSON.toJSONString(answer));
        }
        Runtime.getRuntime().halt(0);
    }
}
