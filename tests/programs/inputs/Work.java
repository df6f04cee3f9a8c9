// The virtual machine allocates for its compilers, its collector, its threads, zip and direct buffers.
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.TreeMap;
import java.util.concurrent.Callable;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.zip.CRC32;
import java.util.zip.Deflater;
import java.util.zip.Inflater;

public class Work {
    static long build(int seed) throws Exception {
        TreeMap<String, List<Integer>> index = new TreeMap<>();
        for (int i = 0; i < 15000; i++)
            index.computeIfAbsent("word" + ((long) i * 7919 + seed) % 5003, key -> new ArrayList<>()).add(i);
        byte[] text = index.toString().getBytes(StandardCharsets.UTF_8);
        CRC32 sum = new CRC32();
        for (int level = 1; level <= 9; level += 2) {
            Deflater deflater = new Deflater(level);
            deflater.setInput(text);
            deflater.finish();
            byte[] packed = new byte[text.length + 100];
            int length = deflater.deflate(packed);
            deflater.end();
            Inflater inflater = new Inflater();
            inflater.setInput(packed, 0, length);
            byte[] back = new byte[text.length];
            sum.update(back, 0, inflater.inflate(back));
            inflater.end();
        }
        for (int i = 0; i < 60; i++) {
            ByteBuffer direct = ByteBuffer.allocateDirect(1000 + i * 997);
            direct.putInt(0, i + seed).put(direct.capacity() - 1, (byte) i);
            sum.update(direct);
        }
        return sum.getValue();
    }

    public static void main(String[] words) throws Exception {
        if (words.length == 1) {
            System.out.println(build(Integer.parseInt(words[0])));
            return;
        }
        var pool = Executors.newFixedThreadPool(8);
        List<Callable<Long>> tasks = new ArrayList<>();
        for (int i = 0; i < 24; i++) {
            int seed = i;
            tasks.add(() -> build(seed));
        }
        for (Future<Long> done : pool.invokeAll(tasks))
            System.out.println(done.get());
        pool.shutdown();
        for (int i = 0; i < 300; i++) {
            Thread thread = new Thread(() -> ByteBuffer.allocateDirect(4096).put(0, (byte) 1));
            thread.start();
            thread.join();
        }
        String java = System.getProperty("java.home") + "/bin/java";
        var child = new ProcessBuilder(java, "-cp", System.getProperty("java.class.path"), "Work", "77").start();
        System.out.print("child " + new String(child.getInputStream().readAllBytes(), StandardCharsets.UTF_8));
        System.out.println(child.waitFor());
    }
}
