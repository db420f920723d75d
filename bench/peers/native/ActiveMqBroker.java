import java.io.File;
import org.apache.activemq.broker.BrokerService;
import org.apache.activemq.store.kahadb.KahaDBPersistenceAdapter;

/** ActiveMQ with KahaDB, without Spring: ActiveMqBroker URI DIRECTORY always|never (when the journal is synced). */
public final class ActiveMqBroker {
    public static void main(String[] arguments) throws Exception {
        KahaDBPersistenceAdapter store = new KahaDBPersistenceAdapter();
        store.setDirectory(new File(arguments[1], "kahadb"));
        store.setJournalDiskSyncStrategy(arguments[2]);
        BrokerService broker = new BrokerService();
        broker.setBrokerName("bench");
        broker.setDataDirectory(arguments[1]);
        broker.setUseJmx(false);
        broker.setPersistenceAdapter(store);
        broker.addConnector(arguments[0]);
        broker.start();
        broker.waitUntilStopped();
    }
}
