// Prints the addresses of a name, as the resolver of the C library finds them.

#include <arpa/inet.h>
#include <netdb.h>
#include <stdio.h>
#include <sys/socket.h>

int main(int argc, char **argv) {
	if (argc != 2) {
		fputs("want NAME\n", stderr);
		return 2;
	}
	struct addrinfo wanted = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM};
	struct addrinfo *found;
	int code = getaddrinfo(argv[1], NULL, &wanted, &found);
	if (code != 0) {
		fprintf(stderr, "%s: %s\n", argv[1], gai_strerror(code));
		return 1;
	}
	for (struct addrinfo *a = found; a != NULL; a = a->ai_next) {
		char text[INET6_ADDRSTRLEN];
		code = getnameinfo(a->ai_addr, a->ai_addrlen, text, sizeof text, NULL, 0, NI_NUMERICHOST);
		if (code != 0) {
			fprintf(stderr, "%s: %s\n", argv[1], gai_strerror(code));
			return 1;
		}
		puts(text);
	}
	freeaddrinfo(found);
	return 0;
}
