package congreve.interop;

import com.alibaba.fastjson.JSONArray;
import com.alibaba.fastjson.JSONObject;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import org.apache.rocketmq.client.ClientConfig;
import org.apache.rocketmq.client.consumer.AllocateMessageQueueStrategy;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMachineRoomNearby;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueAveragely;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueAveragelyByCircle;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueByMachineRoom;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueConsistentHash;
import org.apache.rocketmq.client.consumer.store.LocalFileOffsetStore;
import org.apache.rocketmq.client.consumer.store.ReadOffsetType;
import org.apache.rocketmq.client.impl.MQClientManager;
import org.apache.rocketmq.common.message.MessageQueue;

/** Which client reads which queue, and where a broadcasting client keeps its offsets. */
final class Shares {
    private Shares() {
    }

    /** The share of each client, by the strategy of that name. */
    static JSONObject allocate(JSONObject request) {
        AllocateMessageQueueStrategy strategy = strategy(request);
        List<String> clients = request.getJSONArray("clients").toJavaList(String.class);
        JSONArray shares = new JSONArray();
        for (String client : clients) {
            shares.add(write(strategy.allocate("group", client, queues(request), clients)));
        }
        return new JSONObject().fluentPut("shares", shares);
    }

    private static AllocateMessageQueueStrategy strategy(JSONObject request) {
        switch (request.getString("strategy")) {
            case "AVG":
                return new AllocateMessageQueueAveragely();
            case "AVG_BY_CIRCLE":
                return new AllocateMessageQueueAveragelyByCircle();
            case "CONSISTENT_HASH":
                return new AllocateMessageQueueConsistentHash(request.getIntValue("nodes"));
            case "MACHINE_ROOM":
                AllocateMessageQueueByMachineRoom rooms = new AllocateMessageQueueByMachineRoom();
                rooms.setConsumeridcs(new HashSet<>(
                    request.getJSONArray("rooms").toJavaList(String.class)));
                return rooms;
            default:
                return new AllocateMachineRoomNearby(
                    new AllocateMessageQueueAveragely(),
                    new AllocateMachineRoomNearby.MachineRoomResolver() {
                        @Override
                        public String brokerDeployIn(MessageQueue queue) {
                            return queue.getBrokerName().split("@")[0];
                        }

                        @Override
                        public String consumerDeployIn(String clientId) {
                            return clientId.split("-")[0];
                        }
                    });
        }
    }

    /** Reads a broadcasting client's offsets, and keeps new ones where some are given. */
    static JSONObject localOffsets(JSONObject request) throws Exception {
        ClientConfig config = new ClientConfig();
        config.setNamesrvAddr(request.getString("namesrv"));
        config.setInstanceName(request.getString("instance"));
        LocalFileOffsetStore store = new LocalFileOffsetStore(
            MQClientManager.getInstance().getOrCreateMQClientInstance(config),
            request.getString("group"));
        store.load();
        List<MessageQueue> queues = queues(request);
        JSONArray read = new JSONArray();
        for (MessageQueue queue : queues) {
            read.add(store.readOffset(queue, ReadOffsetType.READ_FROM_STORE));
        }
        JSONArray offsets = request.getJSONArray("offsets");
        if (offsets != null) {
            for (int i = 0; i < queues.size(); i++) {
                store.updateOffset(queues.get(i), offsets.getLongValue(i), false);
            }
            store.persistAll(new HashSet<>(queues));
        }
        return new JSONObject().fluentPut("read", read)
            .fluentPut("clientId", config.buildMQClientId())
            .fluentPut("folder", LocalFileOffsetStore.LOCAL_OFFSET_STORE_DIR);
    }

    private static List<MessageQueue> queues(JSONObject request) {
        List<MessageQueue> queues = new ArrayList<>();
        for (Object each : request.getJSONArray("queues")) {
            JSONArray queue = (JSONArray) each;
            queues.add(new MessageQueue(
                queue.getString(0), queue.getString(1), queue.getIntValue(2)));
        }
        return queues;
    }

    private static JSONArray write(List<MessageQueue> queues) {
        JSONArray written = new JSONArray();
        for (MessageQueue queue : queues) {
            written.add(new JSONArray()
                .fluentAdd(queue.getTopic()).fluentAdd(queue.getBrokerName())
                .fluentAdd(queue.getQueueId()));
        }
        return written;
    }
}
