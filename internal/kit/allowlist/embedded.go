package allowlist

import "net/netip"

// metadata are addresses at which clouds serve the credentials or the configuration of a node, and which are not link-local.
var metadata = []netip.Prefix{
	netip.MustParsePrefix("fd00:ec2::/32"),          // AWS: ::254, and ::23 of EKS Pod Identity
	netip.MustParsePrefix("fd20:ce::254/128"),       // Google Cloud
	netip.MustParsePrefix("fd00:c1::a9fe:a9fe/128"), // Oracle Cloud
	netip.MustParsePrefix("100.100.100.200/32"),     // Alibaba Cloud
	netip.MustParsePrefix("168.63.129.16/32"),       // Azure: the wire server
	netip.MustParsePrefix("0.0.0.0/8"),              // RFC 1122: this host
}

// The IPv6 networks whose addresses have an IPv4 address in them, to which a translator or a relay forwards.
var (
	nat64      = netip.MustParsePrefix("64:ff9b::/96")    // RFC 6052
	localNAT64 = netip.MustParsePrefix("64:ff9b:1::/48")  // RFC 8215
	translated = netip.MustParsePrefix("::ffff:0:0:0/96") // RFC 7915, formerly RFC 2765
	compatible = netip.MustParsePrefix("::/96")           // RFC 4291
	sixToFour  = netip.MustParsePrefix("2002::/16")       // RFC 3056
	teredo     = netip.MustParsePrefix("2001::/32")       // RFC 4380
)

// embedded returns the IPv4 addresses that an IPv6 address leads to; none for other addresses.
func embedded(address netip.Addr) (all []netip.Addr) {
	if !address.Is6() || address == netip.IPv6Loopback() {
		return nil
	}
	b := address.As16()
	join := func(i, j, k, l int) netip.Addr { return netip.AddrFrom4([4]byte{b[i], b[j], b[k], b[l]}) }
	if b[8]&^0b11 == 0 && b[9] == 0 && b[10] == 0x5e && b[11] == 0xfe {
		all = append(all, join(12, 13, 14, 15)) // ISATAP (RFC 5214), in any network
	}
	switch {
	case nat64.Contains(address), translated.Contains(address), compatible.Contains(address):
		all = append(all, join(12, 13, 14, 15))
	case localNAT64.Contains(address):
		// Its operator chooses the position of the IPv4 address in the address (RFC 6052, 2.2), so each position counts that is
		// not empty.
		found := len(all)
		for _, candidate := range []netip.Addr{join(6, 7, 9, 10), join(7, 9, 10, 11), join(9, 10, 11, 12), join(12, 13, 14, 15)} {
			if !candidate.IsUnspecified() {
				all = append(all, candidate)
			}
		}
		if len(all) == found {
			all = append(all, netip.IPv4Unspecified())
		}
	case sixToFour.Contains(address):
		all = append(all, join(2, 3, 4, 5))
	case teredo.Contains(address):
		// The server, and the client, whose bits are inverted.
		all = append(all, join(4, 5, 6, 7), netip.AddrFrom4([4]byte{^b[12], ^b[13], ^b[14], ^b[15]}))
	}
	return all
}
