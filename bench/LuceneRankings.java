// Ranks documents with Lucene's English analyzer and BM25 (k1 0.9, b 0.4). Run by lucene_rankings.py.
//   java -cp JAR LuceneRankings.java rank DOCUMENTS QUERIES OUT     (DOCUMENTS: id, tab, text; OUT: query, tab, ids)
//   java -cp JAR LuceneRankings.java terms LINES OUT                (OUT: line, tab, its terms)

import java.io.IOException;
import java.io.PrintWriter;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.apache.lucene.analysis.Analyzer;
import org.apache.lucene.analysis.TokenStream;
import org.apache.lucene.analysis.en.EnglishAnalyzer;
import org.apache.lucene.analysis.tokenattributes.CharTermAttribute;
import org.apache.lucene.document.Document;
import org.apache.lucene.document.Field;
import org.apache.lucene.document.StringField;
import org.apache.lucene.document.TextField;
import org.apache.lucene.index.DirectoryReader;
import org.apache.lucene.index.IndexWriter;
import org.apache.lucene.index.IndexWriterConfig;
import org.apache.lucene.index.Term;
import org.apache.lucene.search.BooleanClause;
import org.apache.lucene.search.BooleanQuery;
import org.apache.lucene.search.BoostQuery;
import org.apache.lucene.search.IndexSearcher;
import org.apache.lucene.search.ScoreDoc;
import org.apache.lucene.search.TermQuery;
import org.apache.lucene.search.similarities.BM25Similarity;
import org.apache.lucene.store.ByteBuffersDirectory;

public class LuceneRankings {
  static final Analyzer ANALYZER = new EnglishAnalyzer();

  public static void main(String[] arguments) throws IOException {
    if (arguments[0].equals("terms")) writeTerms(Path.of(arguments[1]), Path.of(arguments[2]));
    else rank(Path.of(arguments[1]), Path.of(arguments[2]), Path.of(arguments[3]));
  }

  static List<String> terms(String text) throws IOException {
    List<String> found = new ArrayList<>();
    try (TokenStream stream = ANALYZER.tokenStream("contents", text)) {
      CharTermAttribute term = stream.addAttribute(CharTermAttribute.class);
      stream.reset();
      while (stream.incrementToken()) found.add(term.toString());
      stream.end();
    }
    return found;
  }

  static void writeTerms(Path lines, Path out) throws IOException {
    try (PrintWriter writer = new PrintWriter(out.toFile(), "UTF-8")) {
      for (String line : Files.readAllLines(lines)) writer.println(line + "\t" + String.join(" ", terms(line)));
    }
  }

  static void rank(Path documents, Path queries, Path out) throws IOException {
    ByteBuffersDirectory directory = new ByteBuffersDirectory();
    IndexWriterConfig settings = new IndexWriterConfig(ANALYZER);
    settings.setSimilarity(new BM25Similarity(0.9f, 0.4f));
    try (IndexWriter writer = new IndexWriter(directory, settings)) {
      for (String line : Files.readAllLines(documents)) {
        int tab = line.indexOf('\t');
        Document document = new Document();
        document.add(new StringField("id", line.substring(0, tab), Field.Store.YES));
        document.add(new TextField("contents", line.substring(tab + 1), Field.Store.NO));
        writer.addDocument(document);
      }
      writer.forceMerge(1);
    }
    IndexSearcher searcher = new IndexSearcher(DirectoryReader.open(directory));
    searcher.setSimilarity(new BM25Similarity(0.9f, 0.4f));
    try (PrintWriter writer = new PrintWriter(out.toFile(), "UTF-8")) {
      for (String query : Files.readAllLines(queries)) {
        Map<String, Integer> counts = new LinkedHashMap<>();
        for (String term : terms(query)) counts.merge(term, 1, Integer::sum);
        BooleanQuery.Builder wanted = new BooleanQuery.Builder();
        counts.forEach((term, count) -> wanted.add(
            new BoostQuery(new TermQuery(new Term("contents", term)), count), BooleanClause.Occur.SHOULD));
        List<String> ids = new ArrayList<>();
        for (ScoreDoc hit : searcher.search(wanted.build(), 50).scoreDocs) ids.add(searcher.doc(hit.doc).get("id"));
        writer.println(query + "\t" + String.join(" ", ids));
      }
    }
  }
}
