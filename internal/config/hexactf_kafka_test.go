package config

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	"github.com/bergctf/berg-operator/internal/kit/settings"
)

func loadKafka(env map[string]string) (Kafka, error) {
	var k Kafka
	section := settings.Section{Settings: k.settings(), Check: k.check}
	_, err := settings.Load("", []settings.Section{section}, nil, func(name string) string { return env[name] }, &bytes.Buffer{})
	return k, err
}

func TestKafkaIsOffByDefault(t *testing.T) {
	k, err := loadKafka(nil)
	if err != nil {
		t.Fatal(err)
	}
	if k.Enabled() || k.Topic != "challenge-status" || k.DeleteTimeout.Seconds() != 30 || k.SendTimeout.Seconds() != 5 {
		t.Errorf("unexpected defaults: %+v", k)
	}
}

func TestBrokers(t *testing.T) {
	for text, want := range map[string][]string{
		"kafka:9093": {"kafka:9093"},
		" a.example:1 , b.example:2,a.example:1,": {"a.example:1", "b.example:2"},
		"kafka":                   {"kafka:9092"},
		"10.0.0.1":                {"10.0.0.1:9092"},
		"[fd00::1]:9092":          {"[fd00::1]:9092"},
		"[fd00::1]":               {"[fd00::1]:9092"},
		"Kafka.Example.com.:9092": {"Kafka.Example.com.:9092"},
	} {
		k, err := loadKafka(map[string]string{"KAFKA_BROKERS": text})
		if err != nil || !slices.Equal(k.Brokers, want) {
			t.Errorf("%q: %q, error %v, want %q", text, k.Brokers, err, want)
		}
	}
	for _, text := range []string{",", "kafka://a:9092", "a:0", "a:65536", "a:http", "a b:1", "a;b", "_a:1", ":9092", "a:1,-"} {
		_, err := loadKafka(map[string]string{"KAFKA_BROKERS": text})
		if err == nil || !strings.Contains(err.Error(), "KAFKA_BROKERS=") || !strings.Contains(err.Error(), "such as kafka.example.com:9092") {
			t.Errorf("%q: error %v", text, err)
		}
	}
}

func TestWrongSettingsOfKafkaAreNamed(t *testing.T) {
	for name, text := range map[string]string{
		"KAFKA_TOPIC": "a/b", "KAFKA_TLS": "on", "KAFKA_CA_FILE": "ca.crt", "KAFKA_CERTIFICATE_FILE": "./tls.crt", "KAFKA_KEY_FILE": "tls.key",
		"KAFKA_SASL_MECHANISM": "scram-sha-512", "KAFKA_SASL_USERNAME": "a\nb", "KAFKA_SASL_PASSWORD_FILE": "password",
		"KAFKA_SEND_TIMEOUT": "0s", "KAFKA_DELETE_TIMEOUT": "forever",
	} {
		if _, err := loadKafka(map[string]string{name: text}); err == nil || !strings.Contains(err.Error(), name+"=") {
			t.Errorf("%s=%q: error %v", name, text, err)
		}
	}
	for _, name := range []string{".", "..", strings.Repeat("a", 250), "ü"} {
		if _, err := loadKafka(map[string]string{"KAFKA_TOPIC": name}); err == nil {
			t.Errorf("topic %q: accepted", name)
		}
	}
}

func TestSettingsOfKafkaAreComparedWithEachOther(t *testing.T) {
	for name, test := range map[string]struct {
		env  map[string]string
		want string // in the error; "": accepted
	}{
		"certificate without key":        {map[string]string{"KAFKA_TLS": "true", "KAFKA_CERTIFICATE_FILE": "/a"}, "KAFKA_KEY_FILE"},
		"key without certificate":        {map[string]string{"KAFKA_TLS": "true", "KAFKA_KEY_FILE": "/a"}, "KAFKA_CERTIFICATE_FILE"},
		"authorities without TLS":        {map[string]string{"KAFKA_CA_FILE": "/a"}, "KAFKA_TLS"},
		"login without name":             {map[string]string{"KAFKA_SASL_MECHANISM": "PLAIN", "KAFKA_SASL_PASSWORD_FILE": "/a"}, "KAFKA_SASL_USERNAME"},
		"login without password":         {map[string]string{"KAFKA_SASL_MECHANISM": "PLAIN", "KAFKA_SASL_USERNAME": "a"}, "KAFKA_SASL_PASSWORD_FILE"},
		"name without login":             {map[string]string{"KAFKA_SASL_USERNAME": "a"}, "KAFKA_SASL_MECHANISM"},
		"password without login":         {map[string]string{"KAFKA_SASL_PASSWORD_FILE": "/a"}, "KAFKA_SASL_MECHANISM"},
		"TLS, certificate, login":        {map[string]string{"KAFKA_TLS": "true", "KAFKA_CERTIFICATE_FILE": "/a", "KAFKA_KEY_FILE": "/b", "KAFKA_SASL_MECHANISM": "SCRAM-SHA-256", "KAFKA_SASL_USERNAME": "a", "KAFKA_SASL_PASSWORD_FILE": "/c"}, ""},
		"TLS with what the image trusts": {map[string]string{"KAFKA_TLS": "true"}, ""},
	} {
		_, err := loadKafka(test.env)
		if test.want == "" && err != nil || test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)) {
			t.Errorf("%s: error %v, want %q", name, err, test.want)
		}
	}
}

func TestWarningsAboutKafka(t *testing.T) {
	login := map[string]string{"KAFKA_BROKERS": "a:1", "KAFKA_SASL_MECHANISM": "PLAIN", "KAFKA_SASL_USERNAME": "a", "KAFKA_SASL_PASSWORD_FILE": "/a"}
	k, err := loadKafka(login)
	if warnings := k.warnings(); err != nil || len(warnings) != 1 || !strings.Contains(warnings[0], "KAFKA_TLS=false") {
		t.Errorf("a password in plain text: %q, error %v", warnings, err)
	}
	login["KAFKA_SASL_MECHANISM"] = "SCRAM-SHA-512"
	if k, _ := loadKafka(login); len(k.warnings()) != 0 {
		t.Errorf("SCRAM: %q", k.warnings())
	}
	delete(login, "KAFKA_BROKERS")
	if k, _ := loadKafka(login); len(k.warnings()) != 1 {
		t.Errorf("no brokers: %q", k.warnings())
	}
}
