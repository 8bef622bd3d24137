package tidelog.peers;

import java.util.Arrays;

/** Apache Kafka's Java client as a peer: the commands that tests/peers/drivers.py describes. */
public final class Driver {
    private static final int EXIT_FAILED = 1;
    private static final int EXIT_TOO_FEW = 3;
    private static final int EXIT_GAVE_UP = 3;

    private Driver() {}

    public static void main(String[] args) {
        System.exit(run(args));
    }

    private static int run(String[] args) {
        if (args.length == 0) {
            System.err.println("name a command: produce, consume, load, subscribe, transform or admin");
            return EXIT_FAILED;
        }
        String[] rest = Arrays.copyOfRange(args, 1, args.length);
        try {
            switch (args[0]) {
                case "produce":
                    Produce.run(new Options(rest));
                    return 0;
                case "consume":
                    return Consume.run(new Options(rest)) ? 0 : EXIT_TOO_FEW;
                case "load":
                    Load.run(new Options(rest));
                    return 0;
                case "subscribe":
                    Subscribe.run(new Options(rest));
                    return 0;
                case "transform":
                    return Transform.run(new Options(rest)) ? 0 : EXIT_GAVE_UP;
                case "admin":
                    AdminCommand.run(rest);
                    return 0;
                default:
                    throw new IllegalArgumentException("unknown command " + args[0]);
            }
        } catch (Exception failure) {
            failure.printStackTrace();
            return EXIT_FAILED;
        }
    }
}
