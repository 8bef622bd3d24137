package tidelog.peers;

import java.util.ArrayList;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

/** Options of the form {@code --name value} or {@code --name=value}, any of which may be repeated. */
final class Options {
    private final Map<String, List<String>> values = new HashMap<>();

    Options(String[] args) {
        for (int i = 0; i < args.length; i++) {
            if (!args[i].startsWith("--")) {
                throw new IllegalArgumentException("expected an option, got " + args[i]);
            }
            String name = args[i].substring(2);
            int equals = name.indexOf('=');
            if (equals >= 0) {
                add(name.substring(0, equals), name.substring(equals + 1));
            } else if (i + 1 < args.length) {
                add(name, args[++i]);
            } else {
                throw new IllegalArgumentException("--" + name + " needs a value");
            }
        }
    }

    private void add(String name, String value) {
        values.computeIfAbsent(name, ignored -> new ArrayList<>()).add(value);
    }

    String get(String name) {
        String value = get(name, null);
        if (value == null) {
            throw new IllegalArgumentException("--" + name + " is missing");
        }
        return value;
    }

    String get(String name, String fallback) {
        List<String> given = values.get(name);
        return given == null ? fallback : given.get(given.size() - 1);
    }

    int integer(String name, int fallback) {
        return Integer.parseInt(get(name, Integer.toString(fallback)));
    }

    boolean flag(String name) {
        return Boolean.parseBoolean(get(name, "false"));
    }

    List<String> all(String name) {
        return values.getOrDefault(name, List.of());
    }

    /** Every {@code --name key=value} as a map. */
    Map<String, String> pairs(String name) {
        Map<String, String> pairs = new LinkedHashMap<>();
        for (String pair : all(name)) {
            String[] parts = pair.split("=", 2);
            pairs.put(parts[0], parts.length == 2 ? parts[1] : "");
        }
        return pairs;
    }
}
