# Writes flags as encoders of Perl do. Run: perl encode.pl <flags.json >perl.json
use strict; use warnings; use JSON::PP; use MIME::Base64; use MIME::QuotedPrint; use Encode;
my @out;
for my $flag (@{ JSON::PP->new->utf8->decode(join '', <STDIN>) }) {
    my $raw = encode('UTF-8', $flag);
    my %t = (json => JSON::PP->new->ascii->allow_nonref->encode($flag), hex => unpack('H*', $raw), HEX => uc unpack('H*', $raw));
    ($t{uri} = $raw) =~ s/([^A-Za-z0-9_.~!*'()-])/sprintf('%%%02X', ord $1)/ge;
    ($t{cgi} = $raw) =~ s/([^A-Za-z0-9_.-])/sprintf('%%%02x', ord $1)/ge;
    ($t{html} = $flag) =~ s/([^A-Za-z0-9 ])/sprintf('&#%d;', ord $1)/ge;
    ($t{quotemeta} = quotemeta $raw);
    $t{quotemeta} = decode('UTF-8', $t{quotemeta}) if $raw eq $flag;
    delete $t{quotemeta} unless $raw eq $flag;
    ($t{octal} = $raw) =~ s/([^ -~])/sprintf('\\%03o', ord $1)/ge;
    $t{base64} = encode_base64($raw); $t{mail} = encode_base64("Dear player, here is the flag of this challenge, keep it well: $raw");
    push @out, { flag => $flag, texts => \%t };
}
print JSON::PP->new->utf8->pretty->canonical->encode(\@out);
