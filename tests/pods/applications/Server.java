import com.sun.net.httpserver.HttpServer;
import java.net.InetSocketAddress;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.Timer;
import java.util.TimerTask;
import java.util.concurrent.Executors;
import java.util.concurrent.atomic.AtomicLong;

/** Counts its answers, beside a timer, and a thread whose garbage is collected and whose code is compiled meanwhile. */
public class Server {
    static final AtomicLong ANSWERED = new AtomicLong();
    static volatile Object kept;

    static void say(String kind, long count) {
        System.out.println(kind + " " + count);
        System.out.flush();
    }

    static void compute() {
        for (long round = 0; ; round++) {
            var list = new ArrayList<byte[]>();
            var squares = new HashMap<Integer, Integer>();
            for (int index = 0; index < 200; index++) {
                list.add(new byte[10_000]);
                squares.put(index, index * index);
            }
            kept = list;
            int sum = 0;
            for (int square : squares.values()) {
                sum += square;
            }
            if (sum != 2_646_700) {
                say("wrong", sum);
            }
            if (round % 10 == 0) {
                say("garbage", round);
            }
            try {
                Thread.sleep(5);
            } catch (InterruptedException exception) {
                say("wrong", round);
            }
        }
    }

    public static void main(String[] arguments) throws Exception {
        var server = HttpServer.create(new InetSocketAddress(80), 0);
        server.setExecutor(Executors.newFixedThreadPool(4));
        server.createContext("/", exchange -> {
            byte[] page = Long.toString(ANSWERED.incrementAndGet()).getBytes();
            exchange.sendResponseHeaders(200, page.length);
            exchange.getResponseBody().write(page);
            exchange.close();
        });
        server.start();
        new Timer(true).schedule(new TimerTask() {
            long ticks = 0;

            @Override
            public void run() {
                if (++ticks % 10 == 0) {
                    say("timer", ticks);
                }
            }
        }, 10, 10);
        new Thread(Server::compute).start();
    }
}
