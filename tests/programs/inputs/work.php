<?php
// Arrays, strings, JSON, regular expressions, sorting and included files. The test runs this file with PHP's own memory
// manager, and with USE_ZEND_ALLOC=0, where PHP allocates each block by malloc.
function build(int $seed): string
{
    $rows = [];
    for ($i = 0; $i < 20000; $i++)
        $rows[] = ['id' => $i, 'name' => 'name ' . (($i * 7919 + $seed) % 5003), 'tags' => array_fill(0, $i % 7, str_repeat('x', $i % 40))];
    $back = json_decode(json_encode($rows), true);
    usort($back, fn ($a, $b) => [$a['name'], $a['id']] <=> [$b['name'], $b['id']]);
    $back = array_values(array_filter($back, fn ($row) => $row['id'] % 3));
    $text = implode("\n", array_map(fn ($row) => $row['name'] . ':' . implode(',', $row['tags']), $back));
    $text = preg_replace_callback('/name (\d+)/', fn ($found) => strrev($found[1]), $text);
    return md5($text . serialize(array_slice($back, 0, 500))) . ' ' . preg_match_all('/x{5,9},/', $text);
}

for ($round = 0; $round < 2; $round++)
    echo build($round), "\n";
for ($i = 0; $i < 30; $i++) {
    $path = "included$i.php";
    file_put_contents($path, '<?php namespace n' . $i . '; class C { public array $a = [' . implode(', ', range(0, 200)) . "]; }\nreturn array_sum((new C)->a) + $i;");
    echo include $path, $i % 10 == 9 ? "\n" : ' ';
}
function numbers(int $count): Generator
{
    for ($i = 0; $i < $count; $i++)
        yield str_pad((string) $i, 20 + $i % 300);
}
$lengths = 0;
foreach (numbers(20000) as $padded)
    $lengths += strlen($padded);
echo $lengths, ' ', strlen(var_export(range(1, 5000), true)), ' ', count(get_loaded_extensions()) > 10 ? 'extensions' : 'bare', "\n";
try {
    $deep = fn ($self, $n) => $n == 0 ? throw new RuntimeException('deep') : $self($self, $n - 1);
    $deep($deep, 5000);
} catch (RuntimeException $e) {
    echo $e->getMessage(), ' ', count($e->getTrace()), "\n";
}
