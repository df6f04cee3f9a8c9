# Strings, hashes and regular expressions with garbage collection, then threads, forks, and a new ruby process.
require "digest"
require "json"
require "rbconfig"

def build(seed)
  rows = Array.new(6000) { |i| { "id" => i, "name" => "name #{(i * 7919 + seed) % 5003}", "tags" => ["x" * (i % 60)] * (i % 5) } }
  back = JSON.parse(JSON.generate(rows)).reject { |row| (row["id"] % 3).zero? }
  back.sort_by! { |row| [row["name"], row["id"]] }
  text = back.map { |row| row["name"] + row["tags"].join(",") }.join("\n")
  text.gsub!(/name (\d+)/) { $1.reverse }
  digest = Digest::SHA256.hexdigest(text + (3**(5000 + seed)).to_s + text.scan(/x{5,9},/).size.to_s)[0, 16]
  GC.start if (seed % 4).zero?
  digest
end

if ARGV[0] == "child"
  puts build(77)
  exit
end
$stdout.sync = true
puts build(1)
puts (0...8).map { |seed| Thread.new { build(seed) } }.map(&:value)
GC.compact if GC.respond_to?(:compact)
6.times do |seed|
  reader, writer = IO.pipe
  pid = fork { writer.write(build(seed)); exit!(0) }
  writer.close
  puts reader.read
  Process.wait(pid)
end
puts `#{RbConfig.ruby} #{__FILE__} child`, $?.exitstatus
