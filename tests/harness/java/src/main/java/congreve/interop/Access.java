package congreve.interop;

import org.apache.rocketmq.acl.common.AclClientRPCHook;
import org.apache.rocketmq.acl.common.SessionCredentials;
import org.apache.rocketmq.remoting.RPCHook;

/** Signs the requests of all clients, if the driver was started with an account. */
final class Access {
    private Access() {
    }

    static RPCHook hook() {
        String key = System.getProperty("interop.accessKey");
        String secret = System.getProperty("interop.secretKey");
        return key == null ? null : new AclClientRPCHook(new SessionCredentials(key, secret));
    }
}
