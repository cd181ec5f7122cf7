package main

import (
	"bufio"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
)

// The prices are in rappen. No honest customer has enough for the golden ticket.
const (
	startingBalance int32 = 10_000
	ticketPrice     int32 = 2_500
	goldenPrice     int32 = 1_000_000_000
)

const menu = `
1) balance
2) buy ordinary tickets
3) buy the golden ticket
4) leave
> `

// visit is one customer at the kiosk, until the input ends, "leave" is chosen or the golden ticket is
// sold. printFlag runs the flag executable and returns its output.
func visit(in io.Reader, out io.Writer, printFlag func() ([]byte, error)) {
	input := bufio.NewScanner(io.LimitReader(in, 1<<16))
	balance := startingBalance
	fmt.Fprintf(out, "Mountain railway, ticket kiosk. A ticket costs %d, the golden ticket %d.\n", ticketPrice, goldenPrice)
	for {
		fmt.Fprint(out, menu)
		if !input.Scan() {
			return
		}
		switch strings.TrimSpace(input.Text()) {
		case "1":
			fmt.Fprintf(out, "You have %d.\n", balance)
		case "2":
			fmt.Fprint(out, "How many? ")
			if !input.Scan() {
				return
			}
			balance = buyTickets(out, balance, strings.TrimSpace(input.Text()))
		case "3":
			if balance < goldenPrice {
				fmt.Fprintf(out, "You are %d short.\n", goldenPrice-balance)
				continue
			}
			flag, err := printFlag()
			if err != nil {
				fmt.Fprintln(out, "The printer is out of order, please tell the organizers.")
				return
			}
			fmt.Fprintf(out, "Here is your golden ticket: %s\n", flag)
			return
		case "4":
			fmt.Fprintln(out, "Have a good journey.")
			return
		default:
			fmt.Fprintln(out, "Please choose 1 to 4.")
		}
	}
}

// buyTickets returns the new balance.
func buyTickets(out io.Writer, balance int32, answer string) int32 {
	count, err := strconv.ParseInt(answer, 10, 32)
	if err != nil || count < 1 {
		fmt.Fprintf(out, "A number from 1 to %d, please.\n", math.MaxInt32)
		return balance
	}
	// This is the bug to find: the product wraps around, and a negative price is paid to the customer.
	price := ticketPrice * int32(count)
	if price > balance {
		fmt.Fprintln(out, "You cannot pay for that.")
		return balance
	}
	fmt.Fprintf(out, "%d tickets for %d, thank you.\n", count, price)
	return balance - price
}
