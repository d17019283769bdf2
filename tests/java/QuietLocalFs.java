// The local folder as Hadoop's FileContext has it, without a process for each file: Hadoop runs `readlink` for each name
// that it looks at and `chmod` for each file that it makes, where it has no native library, some 50 processes a batch.
// What is read, written, synced and renamed, in which order, is Hadoop's own code.

import java.io.IOException;
import java.net.URI;
import java.net.URISyntaxException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.attribute.PosixFilePermissions;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.ChecksumFs;
import org.apache.hadoop.fs.DelegateToFileSystem;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.RawLocalFileSystem;
import org.apache.hadoop.fs.permission.FsPermission;

public class QuietLocalFs extends ChecksumFs {
  public QuietLocalFs(URI uri, Configuration conf) throws IOException, URISyntaxException {
    super(new Raw(uri, conf));
  }

  static class Raw extends DelegateToFileSystem {
    Raw(URI uri, Configuration conf) throws IOException, URISyntaxException {
      super(uri, new LocalFiles(), conf, "file", false);
    }

    @Override
    public int getUriDefaultPort() {
      return -1;
    }

    @Override
    public boolean isValidName(String name) {
      return true;
    }
  }

  static class LocalFiles extends RawLocalFileSystem {
    @Override
    public FileStatus getFileLinkStatus(org.apache.hadoop.fs.Path path) throws IOException {
      boolean link = Files.isSymbolicLink(file(path));
      return link ? super.getFileLinkStatus(path) : getFileStatus(path);
    }

    @Override
    public void setPermission(org.apache.hadoop.fs.Path path, FsPermission wanted) throws IOException {
      String bits =
          wanted.getUserAction().SYMBOL + wanted.getGroupAction().SYMBOL + wanted.getOtherAction().SYMBOL;
      if (wanted.getStickyBit()) {
        super.setPermission(path, wanted);
      } else {
        Files.setPosixFilePermissions(file(path), PosixFilePermissions.fromString(bits));
      }
    }

    private Path file(org.apache.hadoop.fs.Path path) {
      return pathToFile(path).toPath();
    }
  }
}
