package main

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"errors"
	"fmt"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"time"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	"github.com/bergctf/berg-operator/test/lib/browser"
)

const (
	// headline stands on the front page of the web instance.
	headline = "The Mountain Herald"
	// pictureWidth and pictureHeight are of the window that the picture shows, in pixels.
	pictureWidth, pictureHeight = 800, 420
	// routeTimeout bounds how long the Gateway may take to hear of a route.
	routeTimeout = 30 * time.Second
	// localPort is where a forwarded page is on this machine.
	localPort = 8080
)

// page is where a browser of this machine finds the web instance.
type page struct {
	url string
	// domain is that of the Gateway's names, address its own.
	domain, address string
	// key is the hash by which a browser can be told to believe the certificate of the Gateway.
	key string
}

// browseGateway is browse through the Gateway, by https, as a player goes there: only DNS is left out.
func (d *demo) browseGateway(ctx context.Context, instance *bergv1.ChallengeInstance) (*http.Client, string, error) {
	if len(instance.Status.Services) == 0 {
		return nil, "", fmt.Errorf("instance %s has no address", instance.Name)
	}
	service := instance.Status.Services[0]
	d.show.note("going to %s through the Gateway", service.URL)
	trusted, err := d.trusted()
	if err != nil {
		return nil, "", err
	}
	transport := &http.Transport{
		TLSClientConfig: trusted,
		DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			_, port, err := net.SplitHostPort(address)
			if err != nil {
				return nil, err
			}
			nodes, err := d.target.nodeAddresses(ctx)
			if err != nil {
				return nil, err
			}
			return (&net.Dialer{}).DialContext(ctx, network, net.JoinHostPort(nodes[0], port))
		},
	}
	guest := &http.Client{Transport: transport}
	return guest, service.URL, awaitPage(ctx, guest, service.URL)
}

// awaitPage waits until the Gateway has heard of the route.
func awaitPage(ctx context.Context, guest *http.Client, url string) error {
	ctx, cancel := context.WithTimeout(ctx, routeTimeout)
	defer cancel()
	ticker := time.NewTicker(pollInterval)
	defer ticker.Stop()
	for {
		err := answers(ctx, guest, url)
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("the Gateway does not lead to the instance: %w", err)
		case <-ticker.C:
		}
	}
}

func answers(ctx context.Context, guest *http.Client, url string) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	response, err := guest.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("%s answers %s", url, response.Status)
	}
	return nil
}

// trusted believes the cluster's authority, which has signed the certificate of the Gateway.
func (d *demo) trusted() (*tls.Config, error) {
	authorities := x509.NewCertPool()
	if !authorities.AppendCertsFromPEM(d.target.config.CAData) {
		return nil, errors.New("the kubeconfig holds no certificate of the cluster's authority")
	}
	return &tls.Config{RootCAs: authorities, MinVersion: tls.VersionTLS12}, nil
}

// openInBrowser visits the web instance with a real browser, where there is one, and keeps a picture.
func (d *demo) openInBrowser(ctx context.Context) error {
	if !d.target.gateway {
		return nil
	}
	look := []string{d.kubectlLine("get httproutes -A"), d.kubectlLine("describe gateways.gateway.networking.k8s.io berg-gateway -n " + samplesNamespace)}
	return d.show.step(ctx, "open the web instance in a browser, by https", look, func(ctx context.Context) (outcome, error) {
		p, err := d.findPage(ctx)
		if err != nil {
			return "", err
		}
		d.page = p
		visitor, err := browser.New(ctx, p.domain, p.address, d.target.config.CAData)
		if errors.Is(err, browser.ErrMissing) {
			return outcome("left out, for there is none: " + err.Error()), nil
		}
		if err != nil {
			return "", err
		}
		file := d.opts.picture
		if !filepath.IsAbs(file) {
			file = filepath.Join(d.target.root, file)
		}
		err = d.takePicture(ctx, visitor, p.url, file)
		return outcome(fmt.Sprintf("%q, a picture of it is in %s", headline, d.opts.picture)), errors.Join(err, visitor.Close())
	})
}

func (d *demo) takePicture(ctx context.Context, visitor *browser.Browser, url, file string) error {
	shown, err := visitor.Page(ctx, url)
	if err != nil {
		return err
	}
	if !strings.Contains(shown, headline) {
		return fmt.Errorf("the browser shows another page than %q", headline)
	}
	return visitor.Picture(ctx, url, file, pictureWidth, pictureHeight)
}

// findPage asks the cluster where the web instance is, and the Gateway for its certificate.
func (d *demo) findPage(ctx context.Context) (*page, error) {
	instance, err := d.instance(ctx, webInstance)
	if err != nil {
		return nil, err
	}
	nodes, err := d.target.nodeAddresses(ctx)
	if err != nil {
		return nil, err
	}
	trusted, err := d.trusted()
	if err != nil {
		return nil, err
	}
	service := instance.Status.Services[0]
	trusted.ServerName = service.Hostname
	ctx, cancel := context.WithTimeout(ctx, routeTimeout)
	defer cancel()
	port := fmt.Sprint(service.Port)
	connection, err := (&tls.Dialer{Config: trusted}).DialContext(ctx, "tcp", net.JoinHostPort(nodes[0], port))
	if err != nil {
		return nil, fmt.Errorf("the Gateway: %w", err)
	}
	defer connection.Close()
	secure, ok := connection.(*tls.Conn)
	if !ok || len(secure.ConnectionState().PeerCertificates) == 0 {
		return nil, errors.New("the Gateway shows no certificate")
	}
	key := sha256.Sum256(secure.ConnectionState().PeerCertificates[0].RawSubjectPublicKeyInfo)
	_, domain, _ := strings.Cut(service.Hostname, ".")
	return &page{url: service.URL, domain: domain, address: nodes[0], key: base64.StdEncoding.EncodeToString(key[:])}, nil
}

// command starts a browser of this machine, with a profile of its own, that finds the page and believes its
// certificate, which no authority that browsers know has signed.
func (p *page) command() string {
	return fmt.Sprintf("chromium --user-data-dir=/tmp/berg-demo --host-resolver-rules='%s' --ignore-certificate-errors-spki-list='%s' %s/",
		browser.Rules(p.domain, p.address), p.key, p.url)
}

// invite ends the demo with something to open.
func (d *demo) invite() {
	d.show.line("")
	switch {
	case d.page != nil:
		d.show.line("Open the web instance in a browser of this machine, and find the flag:")
		d.show.line("  %s", d.page.command())
	case d.target.simulated:
		d.show.line("There is no page to open: as root, --profile network makes one.")
	default:
		d.show.line("Open the web instance at http://127.0.0.1:%d, while this runs, and find the flag:", localPort)
		d.show.line("  %s", d.kubectlLine(fmt.Sprintf("port-forward -n %s service/web %d", webNamespace, localPort)))
	}
}
