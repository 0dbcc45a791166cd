"""`noontide api`: the HTTP API. One module per noun; `app.create_app` puts them together.

An API node has no state: writes are requests on `requests.api`, reads are questions to the owner of the slot.
"""
