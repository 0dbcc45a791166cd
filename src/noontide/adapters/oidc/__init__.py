"""OpenID Connect: whose key a token is signed with, and what it says about who asks."""
