"""Access to the API: tokens of our own and of an issuer, rates, and what an API without either may listen on."""
