import com.fasterxml.jackson.databind.JsonNode;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.concurrent.ExecutionException;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.ListConfigResourcesOptions;
import org.apache.kafka.clients.admin.ListTransactionsOptions;
import org.apache.kafka.common.ElectionType;
import org.apache.kafka.common.acl.AccessControlEntry;
import org.apache.kafka.common.acl.AclBinding;
import org.apache.kafka.common.acl.AclBindingFilter;
import org.apache.kafka.common.acl.AclOperation;
import org.apache.kafka.common.acl.AclPermissionType;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.resource.PatternType;
import org.apache.kafka.common.resource.ResourcePattern;
import org.apache.kafka.common.resource.ResourceType;

/** Steps of an administrator who looks for what is not his. */
final class Tenants {
    /** [try, [step, ...]]: the name of the exception that the step ends with, or its answer. */
    static Object attempt(Admin admin, JsonNode step) throws Exception {
        try {
            return Admins.one(admin, step.get(1));
        } catch (ExecutionException problem) {
            return problem.getCause().getClass().getSimpleName();
        }
    }

    /** [transactions, pattern]: the transactional ids that are listed; without a pattern all. */
    static Object transactions(Admin admin, JsonNode step) throws Exception {
        ListTransactionsOptions options = new ListTransactionsOptions();
        if (step.has(1)) {
            options.filterOnTransactionalIdPattern(step.get(1).asText());
        }
        Set<String> found = new TreeSet<>();
        admin.listTransactions(options).all().get().forEach(one -> found.add(one.transactionalId()));
        return found;
    }

    /** [transaction, id]: its state. */
    static Object transaction(Admin admin, JsonNode step) throws Exception {
        String id = step.get(1).asText();
        return admin.describeTransactions(List.of(id)).description(id).get().state().toString();
    }

    /** [elect_all]: the results for all partitions there are. */
    static Object electAll(Admin admin, JsonNode step) throws Exception {
        Map<String, String> found = new TreeMap<>();
        admin.electLeaders(ElectionType.PREFERRED, null).partitions().get()
                .forEach((partition, error) -> found.put(partition.toString(), error.toString()));
        return found;
    }

    /** [allow_any, TOPIC | GROUP | TRANSACTIONAL_ID, LITERAL | PREFIXED, name, user]: let that user do everything. */
    static Object allow(Admin admin, JsonNode step) throws Exception {
        ResourcePattern pattern = new ResourcePattern(
                ResourceType.valueOf(step.get(1).asText()),
                step.get(3).asText(),
                PatternType.valueOf(step.get(2).asText()));
        String user = "User:" + step.get(4).asText();
        AccessControlEntry entry = new AccessControlEntry(user, "*", AclOperation.ALL, AclPermissionType.ALLOW);
        return admin.createAcls(List.of(new AclBinding(pattern, entry))).all().get();
    }

    /** [all_acls]: every one that is shown, as "TOPIC LITERAL name". */
    static Object acls(Admin admin, JsonNode step) throws Exception {
        return words(admin.describeAcls(AclBindingFilter.ANY).values().get());
    }

    /** [revoke_all]: delete every one. */
    static Object revoke(Admin admin, JsonNode step) throws Exception {
        return words(admin.deleteAcls(List.of(AclBindingFilter.ANY)).all().get());
    }

    private static Set<String> words(Iterable<AclBinding> found) {
        Set<String> words = new TreeSet<>();
        found.forEach(acl -> words.add(
                acl.pattern().resourceType() + " " + acl.pattern().patternType() + " " + acl.pattern().name()));
        return words;
    }

    /** [config_resources]: topics and groups that have configs, as "GROUP name". */
    static Object configs(Admin admin, JsonNode step) throws Exception {
        Set<ConfigResource.Type> types = Set.of(ConfigResource.Type.TOPIC, ConfigResource.Type.GROUP);
        Set<String> found = new TreeSet<>();
        admin.listConfigResources(types, new ListConfigResourcesOptions()).all().get()
                .forEach(one -> found.add(one.type() + " " + one.name()));
        return found;
    }
}
