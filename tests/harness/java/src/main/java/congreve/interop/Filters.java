package congreve.interop;

import com.alibaba.fastjson.JSONArray;
import com.alibaba.fastjson.JSONObject;
import org.apache.rocketmq.broker.filter.MessageEvaluationContext;
import org.apache.rocketmq.common.filter.ExpressionType;
import org.apache.rocketmq.common.message.MessageDecoder;
import org.apache.rocketmq.filter.FilterFactory;
import org.apache.rocketmq.filter.expression.Expression;
import org.apache.rocketmq.filter.expression.MQFilterException;

/** The reference's SQL92 filter, as its broker uses it. */
final class Filters {
    private Filters() {
    }

    /** Outcomes of each expression over each text of properties; "REFUSED" for the whole. */
    static JSONObject filter(JSONObject request) {
        JSONArray all = new JSONArray();
        for (Object each : request.getJSONArray("expressions")) {
            JSONArray outcomes = new JSONArray();
            try {
                Expression compiled =
                    FilterFactory.INSTANCE.get(ExpressionType.SQL92).compile((String) each);
                for (Object properties : request.getJSONArray("properties")) {
                    outcomes.add(outcome(compiled, (String) properties));
                }
                all.add(outcomes);
            } catch (MQFilterException refused) {
                all.add("REFUSED");
            }
        }
        return new JSONObject().fluentPut("outcomes", all);
    }

    private static String outcome(Expression compiled, String properties) {
        try {
            Object result = compiled.evaluate(new MessageEvaluationContext(
                MessageDecoder.string2messageProperties(properties)));
            return result == null ? "UNKNOWN" : result.toString().toUpperCase();
        } catch (Throwable thrown) {
            return "ERROR";
        }
    }
}
