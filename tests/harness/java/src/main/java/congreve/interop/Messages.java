package congreve.interop;

import com.alibaba.fastjson.JSONArray;
import com.alibaba.fastjson.JSONObject;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Base64;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageClientExt;
import org.apache.rocketmq.common.message.MessageExt;

/** Messages and send results as JSON and back. Bodies travel as base64. */
final class Messages {
    private Messages() {
    }

    static List<Message> fromJson(JSONArray array) {
        List<Message> messages = new ArrayList<>(array.size());
        for (int i = 0; i < array.size(); i++) {
            JSONObject item = array.getJSONObject(i);
            Message message = new Message(item.getString("topic"), item.getString("tags"),
                item.getString("keys"), item.getIntValue("flag"),
                Base64.getDecoder().decode(item.getString("body")), true);
            if (item.getJSONObject("properties") != null) {
                item.getJSONObject("properties").forEach(
                    (name, value) -> message.putUserProperty(name, (String) value));
            }
            if (item.containsKey("delayLevel")) {
                message.setDelayTimeLevel(item.getIntValue("delayLevel"));
            }
            messages.add(message);
        }
        return messages;
    }

    static JSONObject toJson(SendResult result) {
        return new JSONObject()
            .fluentPut("status", result.getSendStatus().name())
            .fluentPut("msgId", result.getMsgId())
            .fluentPut("offsetMsgId", result.getOffsetMsgId())
            .fluentPut("broker", result.getMessageQueue().getBrokerName())
            .fluentPut("queueId", result.getMessageQueue().getQueueId())
            .fluentPut("queueOffset", result.getQueueOffset());
    }

    static JSONObject toJson(MessageExt message) {
        Map<String, String> properties = new TreeMap<>(message.getProperties());
        JSONObject json = new JSONObject()
            .fluentPut("topic", message.getTopic())
            .fluentPut("queueId", message.getQueueId())
            .fluentPut("queueOffset", message.getQueueOffset())
            .fluentPut("physicalOffset", message.getCommitLogOffset())
            .fluentPut("size", message.getStoreSize())
            .fluentPut("flag", message.getFlag())
            .fluentPut("sysFlag", message.getSysFlag())
            .fluentPut("bodyCrc", message.getBodyCRC())
            .fluentPut("reconsumeTimes", message.getReconsumeTimes())
            .fluentPut("bornTimestamp", message.getBornTimestamp())
            .fluentPut("storeTimestamp", message.getStoreTimestamp())
            .fluentPut("bornHost", String.valueOf(message.getBornHost()))
            .fluentPut("storeHost", String.valueOf(message.getStoreHost()))
            .fluentPut("msgId", message.getMsgId())
            .fluentPut("properties", properties)
            .fluentPut("body", Base64.getEncoder().encodeToString(message.getBody()));
        if (message instanceof MessageClientExt client) {
            json.fluentPut("offsetMsgId", client.getOffsetMsgId());
        }
        return json;
    }

    static JSONArray toJson(List<? extends MessageExt> messages) {
        JSONArray array = new JSONArray(messages.size());
        messages.forEach(message -> array.add(toJson(message)));
        return array;
    }

    /** The body that load sends: its number, then padding up to size bytes. */
    static byte[] numberedBody(int number, int size) {
        StringBuilder text = new StringBuilder().append(number).append('|');
        while (text.length() < size) {
            text.append((char) ('a' + text.length() % 26));
        }
        return text.toString().getBytes(StandardCharsets.US_ASCII);
    }

    static int numberOf(MessageExt message) {
        String text = new String(message.getBody(), StandardCharsets.US_ASCII);
        return Integer.parseInt(text.substring(0, text.indexOf('|')));
    }
}
