module github.com/bergctf/berg-operator/test/cluster/components/outside

go 1.26.0

require golang.org/x/net v0.62.0
