import com.sun.source.util.JavacTask;
import java.io.IOException;
import java.io.Writer;
import java.net.URI;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Locale;
import java.util.stream.Collectors;
import java.util.stream.Stream;
import javax.tools.Diagnostic;
import javax.tools.DiagnosticCollector;
import javax.tools.JavaCompiler;
import javax.tools.JavaFileObject;
import javax.tools.SimpleJavaFileObject;
import javax.tools.StandardJavaFileManager;
import javax.tools.ToolProvider;

/**
 * Checks blocks of Java: each file in the directory that is named is one. A
 * block is a compilation unit, members of a class, or statements. Files whose
 * name contains "compile" must compile, with the usual imports; the others must
 * parse. "preview" in the name turns preview features on. Each fault is a line
 * on stdout: the file's name, a colon, what is wrong.
 */
public class CheckJava {
  static final String IMPORTS = Stream.of("java.io", "java.math", "java.net", "java.net.http",
          "java.nio.charset", "java.nio.file", "java.nio.file.attribute", "java.security", "java.text", "java.time",
          "java.time.format", "java.time.temporal", "java.util", "java.util.concurrent",
          "java.util.concurrent.atomic", "java.util.concurrent.locks", "java.util.function",
          "java.util.random", "java.util.regex", "java.util.stream")
      .map(p -> "import " + p + ".*; ").collect(Collectors.joining());

  static final JavaCompiler COMPILER = ToolProvider.getSystemJavaCompiler();

  public static void main(String[] args) throws IOException {
    List<Path> files;
    try (Stream<Path> dir = Files.list(Path.of(args[0]))) {
      files = dir.sorted().collect(Collectors.toList());
    }
    try (StandardJavaFileManager manager = COMPILER.getStandardFileManager(null, Locale.ROOT, null)) {
      for (Path file : files) {
        String name = file.getFileName().toString();
        String fault = fault(manager, Files.readString(file), name.contains("compile"), name.contains("preview"));
        if (fault != null) {
          System.out.println(name + ": " + fault.replace('\n', ' '));
        }
      }
    }
  }

  static String fault(StandardJavaFileManager manager, String code, boolean compile, boolean preview)
      throws IOException {
    String unparsed = null;
    String uncompiled = null;                // says more: the form was right
    for (String form : forms(code)) {
      unparsed = check(manager, form, false, preview);
      if (unparsed == null) {
        if (!compile || code.startsWith("module ")) {
          return null;
        }
        uncompiled = check(manager, form, true, preview);
        if (uncompiled == null) {
          return null;
        }
      }
    }
    return uncompiled != null ? uncompiled : unparsed;
  }

  /** The block as a unit, in a class, in a method. Lines keep their numbers. */
  static List<String> forms(String code) {
    List<String> imports = new ArrayList<>();
    List<String> rest = new ArrayList<>();
    for (String line : code.split("\n", -1)) {
      boolean head = line.startsWith("import ") || line.startsWith("package ");
      if (line.startsWith("import ")) {
        imports.add(line);
      }
      rest.add(head ? "" : line);
    }
    String head = IMPORTS + String.join(" ", imports) + " ";
    String body = String.join("\n", rest);
    if (code.startsWith("module ")) {
      return List.of(code);
    }
    return Arrays.asList(
        head + body,
        head + "class Block { " + body + "\n}",
        head + "class Block { void block() throws Throwable { " + body + "\n} }");
  }

  static String check(StandardJavaFileManager manager, String code, boolean compile, boolean preview)
      throws IOException {
    DiagnosticCollector<JavaFileObject> found = new DiagnosticCollector<>();
    List<String> options = new ArrayList<>(List.of("-proc:none", "-Xlint:none"));
    if (preview) {
      options.addAll(List.of("--enable-preview", "--release", String.valueOf(Runtime.version().feature())));
    }
    JavacTask task = (JavacTask) COMPILER.getTask(
        Writer.nullWriter(), manager, found, options, null, List.of(new Source(code)));
    task.parse();
    if (compile && errors(found).isEmpty()) {
      task.analyze();
    }
    List<String> errors = errors(found);
    return errors.isEmpty() ? null : errors.get(0);
  }

  static List<String> errors(DiagnosticCollector<JavaFileObject> found) {
    return found.getDiagnostics().stream()
        .filter(d -> d.getKind() == Diagnostic.Kind.ERROR)
        // A public class is fine in a block, whatever the file's name.
        .filter(d -> !d.getCode().equals("compiler.err.class.public.should.be.in.file"))
        .map(d -> "line " + d.getLineNumber() + ": " + d.getMessage(Locale.ROOT))
        .collect(Collectors.toList());
  }

  static class Source extends SimpleJavaFileObject {
    private final String code;

    Source(String code) {
      super(URI.create("string:///Block.java"), Kind.SOURCE);
      this.code = code;
    }

    @Override
    public CharSequence getCharContent(boolean ignoreEncodingErrors) {
      return code;
    }
  }
}
