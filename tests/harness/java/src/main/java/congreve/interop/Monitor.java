package congreve.interop;

import com.alibaba.fastjson.JSON;
import com.alibaba.fastjson.JSONArray;
import com.alibaba.fastjson.JSONObject;
import java.lang.reflect.Proxy;
import java.util.Queue;
import java.util.concurrent.ConcurrentLinkedQueue;
import org.apache.rocketmq.tools.monitor.MonitorConfig;
import org.apache.rocketmq.tools.monitor.MonitorListener;
import org.apache.rocketmq.tools.monitor.MonitorService;

/** What `mqadmin startMonitoring` runs, for one round. */
final class Monitor {
    private Monitor() {
    }

    /** The calls of its listener until an event of deleted messages, for at most timeoutMs. */
    static JSONObject run(JSONObject request) throws Exception {
        Queue<JSONObject> calls = new ConcurrentLinkedQueue<>();
        MonitorListener listener = (MonitorListener) Proxy.newProxyInstance(
            Monitor.class.getClassLoader(), new Class<?>[] {MonitorListener.class},
            (proxy, method, args) -> calls.add(new JSONObject()
                .fluentPut("call", method.getName())
                .fluentPut("of", args == null ? null : JSON.toJSON(args[0]))) ? null : null);
        MonitorConfig config = new MonitorConfig();
        config.setNamesrvAddr(request.getString("namesrv"));
        MonitorService service = new MonitorService(config, listener, null);
        service.start();
        try {
            service.doMonitorWork();
            long end = System.nanoTime() + request.getLongValue("timeoutMs") * 1_000_000L;
            while (System.nanoTime() < end && calls.stream().noneMatch(
                one -> one.getString("call").equals("reportDeleteMsgsEvent"))) {
                Thread.sleep(20);
            }
        } finally {
            service.shutdown();
        }
        return new JSONObject().fluentPut("calls", new JSONArray(calls.stream()
            .map(Object.class::cast).toList()));
    }
}
