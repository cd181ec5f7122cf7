const db = connect({ host: 'db', port: 5432 });
app.listen(process.env.PORT || 4001);
