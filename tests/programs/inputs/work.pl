# Hashes, strings, regular expressions, sorting, forks, a new perl process, and threads if this perl supports them.
use strict;
use warnings;
use Config;
use Digest::MD5 qw(md5_hex);

sub build {
    my ($seed) = @_;
    my %index;
    push @{ $index{ 'word' . (($_ * 7919 + $seed) % 5003) } }, $_ for 0 .. 20_000;
    my $text = join ';', map { "$_=" . join ',', @{ $index{$_} } } sort keys %index;
    (my $turned = $text) =~ s/word(\d+)/scalar reverse $1/ge;
    delete $index{$_} for grep { length > 7 } keys %index;
    my @rows = sort { $a->[1] <=> $b->[1] || $a->[0] cmp $b->[0] } map { [ $_, scalar @{ $index{$_} } ] } keys %index;
    my $found = () = $text =~ /(?<=,)\d+3(?=[,;])/g;
    return md5_hex( $turned . join( ' ', map { $_->[0] } @rows ) . $found . ( 'x' x ( 100_000 + $seed ) ) );
}

if ( @ARGV && $ARGV[0] eq 'child' ) {
    print build(77), "\n";
    exit;
}
$| = 1;
print build(1), "\n";
for my $seed ( 1 .. 6 ) {
    my $pid = open( my $child, '-|' ) // die;
    if ( !$pid ) { print build($seed), "\n"; exit }
    print <$child>;
    close $child or die;
}
print `$^X $0 child`;
die if $?;
if ( $Config{useithreads} ) {
    require threads;
    print $_->join, "\n" for map { threads->create( \&build, $_ ) } 1 .. 6;
}
