// Allocates 800 MiB outside the garbage-collected heap, and keeps them until the end.
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.List;

public class Direct {
    public static void main(String[] words) {
        List<ByteBuffer> kept = new ArrayList<>();
        for (int i = 0; i < 800; i++)
            kept.add(ByteBuffer.allocateDirect(1 << 20).put(i * 1000, (byte) i));
        System.out.println(kept.size());
    }
}
