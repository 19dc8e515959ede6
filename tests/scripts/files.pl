use strict;
use warnings;
use File::Find;

my @found;
find(sub { push @found, $File::Find::name if -f && -r }, 'tree');
for my $name (sort @found) {
    open my $file, '<', $name or die "$name: $!";
    local $/;
    my $text = <$file> // '';
    print "$name ", length($text), ' ', unpack('%32C*', $text), "\n";
}
