package congreve.interop;

import com.alibaba.fastjson.JSONArray;
import com.alibaba.fastjson.JSONObject;
import java.util.UUID;
import org.apache.rocketmq.client.QueryResult;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.common.message.MessageClientIDSetter;
import org.apache.rocketmq.tools.admin.DefaultMQAdminExt;

/** Queries by id and key through DefaultMQAdminExt. */
final class Queries {
    private static final int NO_MESSAGE = 208;

    private Queries() {
    }

    private interface Work {
        JSONObject run(DefaultMQAdminExt admin) throws Exception;
    }

    private static JSONObject with(JSONObject request, Work work) throws Exception {
        DefaultMQAdminExt admin = new DefaultMQAdminExt(Access.hook());
        admin.setNamesrvAddr(request.getString("namesrv"));
        admin.setInstanceName(UUID.randomUUID().toString());
        admin.start();
        try {
            return work.run(admin);
        } finally {
            admin.shutdown();
        }
    }

    /** Each message by its offset message id. */
    static JSONObject view(JSONObject request) throws Exception {
        return with(request, admin -> {
            JSONArray messages = new JSONArray();
            for (Object id : request.getJSONArray("ids")) {
                messages.add(Messages.toJson(admin.viewMessage((String) id)));
            }
            return new JSONObject().fluentPut("messages", messages);
        });
    }

    /** Each message by the id that its producer gave it (the UNIQ_KEY of the index). */
    static JSONObject viewUnique(JSONObject request) throws Exception {
        return with(request, admin -> {
            JSONArray messages = new JSONArray();
            for (Object id : request.getJSONArray("ids")) {
                messages.add(Messages.toJson(
                    admin.viewMessage(request.getString("topic"), (String) id)));
            }
            return new JSONObject().fluentPut("messages", messages);
        });
    }

    /** What MessageClientIDSetter takes out of each id that a producer gave. */
    static JSONObject uniqueIds(JSONObject request) {
        JSONArray found = new JSONArray();
        for (Object id : request.getJSONArray("ids")) {
            found.add(new JSONObject()
                .fluentPut("address", MessageClientIDSetter.getIPStrFromID((String) id))
                .fluentPut("pid", MessageClientIDSetter.getPidFromID((String) id))
                .fluentPut("timeMs",
                    MessageClientIDSetter.getNearlyTimeFromID((String) id).getTime()));
        }
        return new JSONObject().fluentPut("ids", found);
    }

    /** For each key the messages that carry it. */
    static JSONObject query(JSONObject request) throws Exception {
        return with(request, admin -> {
            JSONObject found = new JSONObject();
            for (Object key : request.getJSONArray("keys")) {
                found.put((String) key, query(admin, request, (String) key));
            }
            return new JSONObject().fluentPut("found", found);
        });
    }

    private static JSONArray query(DefaultMQAdminExt admin, JSONObject request, String key)
        throws Exception {
        long end = request.containsKey("end") ? request.getLongValue("end") : Long.MAX_VALUE;
        int max = request.containsKey("max") ? request.getIntValue("max") : 32;
        try {
            QueryResult result = admin.queryMessage(
                request.getString("topic"), key, max, request.getLongValue("begin"), end);
            return Messages.toJson(result.getMessageList());
        } catch (MQClientException e) {
            if (e.getResponseCode() == NO_MESSAGE) {
                return new JSONArray();
            }
            throw e;
        }
    }
}
