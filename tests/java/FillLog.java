import org.apache.logging.log4j.LogManager;
import org.apache.logging.log4j.Logger;

/** Logs so many numbered lines of some 10,000 characters. */
public class FillLog {
    public static void main(String[] arguments) {
        Logger logger = LogManager.getLogger("fill");
        String rest = "x".repeat(9960);
        for (int line = 0; line < Integer.parseInt(arguments[0]); line++) {
            logger.warn("line {} {}", String.format("%07d", line), rest);
        }
    }
}
